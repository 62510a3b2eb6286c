"""Shapes say what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest

from trainwright.spec.model import FAMILIES
from trainwright.spec.recipe import ModelSection

SPEC = ModelSection(layers=2, width=64, heads=4).spec(vocabulary=100)


def test_a_possible_shape_has_no_problems() -> None:
    assert SPEC.problems() == ()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"layers": 0}, "layers must be at least 1, seen 0"),
        ({"width": -3}, "width must be at least 1, seen -3"),
        ({"kv_heads": 3}, "heads (4) must be a multiple of kv_heads (3)"),
        ({"head_size": 15}, "rotary positions need an even head_size, seen 15"),
        ({"family": "lama"}, "unknown family 'lama', expected one of llama, gpt2, bert, "),
    ],
)
def test_each_impossible_shape_is_named(change, line) -> None:
    assert any(problem.startswith(line) for problem in replace(SPEC, **change).problems())


def test_each_family_has_its_file_and_each_file_its_family() -> None:
    names = {item.name.removesuffix(".py") for item in files("trainwright.model.families").iterdir()}
    assert names - {"__init__", "__pycache__"} == set(FAMILIES)
