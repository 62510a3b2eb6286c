"""Shapes say what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest

from trainwright.spec.model import FAMILIES
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.sections.model import ModelSection

SPEC = ModelSection(layers=2, width=64, heads=4).spec(vocabulary=100)


def test_a_possible_shape_has_no_problems() -> None:
    assert SPEC.problems() == ()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"layers": 0}, "layers must be at least 1, seen 0"),
        ({"layers": 99_999_999}, "layers must be at most 10,000, seen 99,999,999"),
        ({"vocabulary": 10**15}, "vocabulary must be at most 1,000,000,000, seen 1,000,000,000,000,000"),
        ({"width": -3}, "width must be at least 1, seen -3"),
        ({"kv_heads": 3}, "heads (4) must be a multiple of kv_heads (3)"),
        ({"head_size": 15}, "rotary positions need an even head_size, seen 15"),
        ({"rotary_share": 0.0}, "rotary_share must be above 0 and at most 1, seen 0.0"),
        ({"rotary_share": 0.1}, "rotary positions need an even head_size, seen"),
        ({"score_cap": 0.0}, "score_cap must be above 0, seen 0.0"),
        ({"rope_scaling": RopeScaling(kind="linear", factor=0.0)}, "rope_scaling factors must be above 0, seen 0.0"),
        ({"rope_scaling": RopeScaling(kind="yarn")}, "rope_scaling.original_tokens must be at least 1, seen None"),
        ({"window_tokens": 0}, "window_tokens must be at least 1, seen 0"),
        ({"window_tokens": 8, "window_layers": (1, 2)}, "window_layers must be numbers below layers (2), seen (1, 2)"),
        ({"experts": Experts(count=2, active=3, ffn_width=8)}, "experts.active (3) exceeds experts.count (2)"),
        ({"experts": Experts(count=0, active=0, ffn_width=8)}, "experts.count must be at least 1, seen 0"),
        ({"experts": Experts(count=2, active=1, ffn_width=8, dense_layers=2)}, "experts.dense_layers must be below"),
        ({"experts": Experts(count=8, active=1, ffn_width=8, groups=3)}, "experts.count (8) must be a multiple of exp"),
        ({"experts": Experts(count=8, active=1, ffn_width=8, groups=4, active_groups=5)}, "experts.active_groups must"),
        ({"experts": Experts(count=8, active=3, ffn_width=8, groups=4)}, "experts.active (3) exceeds the experts of 1"),
        ({"pooling": "mean"}, "pooling=mean is of ModernBERT's heads alone, seen family llama"),
        ({"further_layers": -1}, "further_layers must be at least 0, seen -1"),
        ({"kind": "vision"}, "image_size must be at least 1, seen 0"),
        (
            {"kind": "vision", "image_size": 9, "patch_size": 2, "classes": 3},
            "image_size (9) must be a multiple of patch",
        ),
        ({"family": "lama"}, "unknown family 'lama', expected one of llama, gpt2, "),
    ],
)
def test_each_impossible_shape_is_named(change, line) -> None:
    assert any(problem.startswith(line) for problem in replace(SPEC, **change).problems())


def test_a_head_is_over_the_vocabulary_where_there_are_no_classes() -> None:
    assert SPEC.makes_logits
    assert not replace(SPEC, classes=3).makes_logits
    assert replace(SPEC, classes=3, language_head=True).makes_logits


def test_windows_are_in_all_layers_or_in_those_it_says() -> None:
    assert SPEC.windowed_layers == 0
    assert replace(SPEC, window_tokens=8).windowed_layers == SPEC.layers
    assert replace(SPEC, window_tokens=8, window_layers=(1,)).windowed_layers == 1


def test_each_family_has_its_file_and_each_file_its_family() -> None:
    names = {item.name.removesuffix(".py") for item in files("trainwright.model.families").iterdir()}
    assert names - {"__init__", "__pycache__"} == set(FAMILIES)


def test_another_head_fits_the_same_body_and_another_width_does_not() -> None:
    spec = ModelSection(layers=2, width=64, heads=2).spec(vocabulary=300)
    classifier = replace(spec, classes=3, language_head=False)
    assert classifier.body_differences(spec) == spec.body_differences(classifier) == ()
    assert replace(classifier, width=32, context_tokens=8).body_differences(spec) == ("width", "context_tokens")
