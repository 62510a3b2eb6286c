from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.config_reader import ConfigReader


def test_integers_with_and_without_default():
    read = ConfigReader({"layers": 4, "none": None}, where="config.json")
    assert read.integer("layers") == 4
    assert read.integer("absent", 7) == read.integer("none", 7) == 7


@pytest.mark.parametrize("value", [0, -1, 2.0, "4", True, [4]])
def test_anything_else_is_refused_with_the_value(value):
    with pytest.raises(RecipeError) as caught:
        ConfigReader({"layers": value}, where="config.json").integer("layers")
    expected = f"config.json: bad model configuration: layers (seen {value!r}, expected a whole number >= 1)"
    assert str(caught.value) == expected


def test_a_missing_key_without_default():
    with pytest.raises(RecipeError, match="seen nothing"):
        ConfigReader({}, where="config.json").integer("layers")


def test_refuse_passes_what_is_absent_or_supported():
    read = ConfigReader({"act": "silu", "bias": True}, where="config.json")
    read.refuse("act", "silu")
    read.refuse("absent", False)
    with pytest.raises(RecipeError, match=r"config.json: this model needs bias=True, .* \(expected False\)"):
        read.refuse("bias", False)
