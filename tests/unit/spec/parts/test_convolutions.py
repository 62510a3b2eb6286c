"""Stages of a residual convolutional network, and what of them cannot be built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.spec.parts.convolutions import Convolutions

STAGES = Convolutions(depths=(2, 3), widths=(16, 32))


def test_possible_stages_have_no_problems():
    assert STAGES.problems() == () and STAGES.all_problems(5, 32) == ()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"stem_width": 0}, "stem_width must be at least 1, seen 0"),
        ({"depths": ()}, "depths (()) and widths ((16, 32)) must name the same stages"),
        ({"widths": (0, 32)}, "depths and widths must be at least 1, seen (2, 3) and (0, 32)"),
        ({"widths": (16, 30)}, "widths of bottleneck blocks must be multiples of 4, seen (16, 30)"),
        ({"bottleneck": False, "stride_first": True}, "stride_first is for bottleneck blocks"),
    ],
)
def test_each_reason_is_named_before_sizes_are_compared(change, line):
    (problem,) = replace(STAGES, **change).all_problems(1, 1)
    assert problem.startswith(line)


def test_depth_and_width_of_a_network_are_those_of_its_stages():
    depth, width = STAGES.all_problems(2, 16)
    assert (depth, width) == ("layers (2) is not the 5 of its stages", "width (16) is not the 32 of its stages")
