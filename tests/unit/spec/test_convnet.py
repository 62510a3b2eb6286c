from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.spec.convnet import ConvNetSpec

RESNET = ConvNetSpec(depths=(3, 4, 6, 3), widths=(256, 512, 1024, 2048))


def test_a_possible_network_has_no_problems():
    assert RESNET.problems() == ()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"classes": 0}, "classes must be at least 1, seen 0"),
        ({"depths": (3, 4)}, "depths ((3, 4)) and widths ((256, 512, 1024, 2048)) must name the same stages"),
        ({"depths": (3, 0, 6, 3)}, "depths and widths must be at least 1, seen (3, 0, 6, 3) and"),
        ({"widths": (255, 512, 1024, 2048)}, "widths of bottleneck blocks must be multiples of 4, seen (255,"),
    ],
)
def test_each_impossible_network_is_named(change, line):
    assert any(problem.startswith(line) for problem in replace(RESNET, **change).problems())


def test_networks_say_what_they_are_trained_on():
    resnet, vit, llama = (model(name) for name in ("resnet-50", "vit-b-16", "llama3-8b"))
    assert [each.unit for each in (resnet, vit, llama)] == ["images", "tokens", "tokens"]
    assert [each.sees_images for each in (resnet, vit, llama)] == [True, True, False]
    assert resnet.experts is None


def test_a_convolutional_network_counts_as_undivided_sequences_of_one_token():
    assert (RESNET.is_divisible, RESNET.context_tokens, RESNET.blocks) == (False, 1, 3 + 4 + 6 + 3)
    assert model("llama3-8b").is_divisible
