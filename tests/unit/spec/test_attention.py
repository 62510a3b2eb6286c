"""One table says what each kernel of attention is; what it does not know is none."""

from __future__ import annotations

from typing import get_args

import pytest

from fixtures.tiny_models import spec
from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.model.build import build_network
from trainwright.model.kernels.refusals import of_recompute
from trainwright.planner.counts.pieces import makes_scores
from trainwright.spec.attention import Attention, AttentionKernel, attention_kernel
from trainwright.spec.workload import KernelChoice

NAMES = get_args(AttentionKernel)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_that_a_recipe_can_name_is_described(name) -> None:
    kernel = attention_kernel(name)
    assert kernel.title
    assert kernel.elsewhere or not (kernel.kinds or kernel.capability), "who is refused hears why"
    assert bool(kernel.package) == bool(kernel.install)
    if kernel.masked:
        assert callable(load(kernel.made_by, kind="kernel"))


def test_documents_are_told_to_two_of_them() -> None:
    assert [name for name in NAMES if attention_kernel(name).masked] == ["flex", "fa3"]


def test_an_unknown_kernel_is_refused_and_taken_for_none() -> None:
    unknown = KernelChoice(attention="fa4")
    line = r"unknown kernel of attention \(seen fa4, expected one of auto, math, sdpa, flex, fa3\)"
    with pytest.raises(RecipeError, match=line):
        attention_kernel("fa4")
    with pytest.raises(RecipeError, match=line):
        makes_scores("fa4", device_kind="cuda", sequence_tokens=8)
    with pytest.raises(RecipeError, match=line):
        of_recompute(unknown, "selective")
    with pytest.raises(RecipeError, match=line):
        build_network(spec("llama"), kernels=unknown)


def test_sizes_of_heads_are_said_in_words() -> None:
    assert Attention(title="x", heads=range(16, 1 << 20)).sizes == "16 or larger"
    assert Attention(title="x", heads=range(8, 257, 8)).sizes == "multiples of 8 up to 256"
