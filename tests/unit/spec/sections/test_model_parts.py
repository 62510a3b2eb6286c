"""A variant of a family: what is written, and what stands for none and for all."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.model_parts import VariantSection


def test_only_what_is_written_differs_from_the_family() -> None:
    assert VariantSection().fields(layers=3) == {}
    written = VariantSection(activation="relu", qk_norm=False, window_layers=(0, 2))
    assert written.fields(layers=3) == {"activation": "relu", "qk_norm": False, "window_layers": (0, 2)}


def test_a_bound_of_zero_is_none_and_a_window_in_all_layers_is_that_of_no_layers_named() -> None:
    assert VariantSection(score_cap=0, logit_cap=30.0).fields(layers=1) == {"score_cap": None, "logit_cap": 30.0}
    assert VariantSection(window_layers=(0, 1)).fields(layers=2) == {"window_layers": None}


def test_no_other_activation_is_known() -> None:
    with pytest.raises(ValidationError, match="silu"):
        VariantSection.model_validate({"activation": "swish"})


def test_layers_that_no_network_has_take_no_memory() -> None:
    assert VariantSection(window_layers=(0, 1)).fields(layers=10**15) == {"window_layers": (0, 1)}
