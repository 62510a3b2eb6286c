from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.families.config_reader import ConfigReader


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


def test_what_is_null_is_nothing_and_what_is_absent_is_the_default():
    read = ConfigReader({"rank": None, "size": 8}, where="config.json")
    assert (read.optional("rank", 7), read.optional("absent", 7), read.optional("size", 7)) == (None, 7, 8)


def test_the_first_name_that_is_there_counts():
    read = ConfigReader({"n_embed": 8, "hidden_size": None}, where="config.json")
    assert read.either("hidden_size", "n_embed") == 8
    assert read.either("n_head", "heads", default=3) == 3


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("number", 5, 5.0),
        ("flag", False, False),
        ("square", [32, 32], 32),
        ("sizes", [1, 2], (1, 2)),
        ("indices", [0, 3], (0, 3)),
        ("names", ["a"], ("a",)),
    ],
)
def test_values_of_each_kind(method, value, expected):
    arguments = {"number": (1.0,), "flag": (True,), "square": (1,), "sizes": ((1,),)}.get(method, ())
    assert getattr(ConfigReader({"key": value}, where="here"), method)("key", *arguments) == expected
    with pytest.raises(RecipeError, match=r"^here: bad model configuration: key \(seen 'x', expected "):
        getattr(ConfigReader({"key": "x"}, where="here"), method)("key", *arguments)


@pytest.mark.parametrize(
    ("rope", "theta"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 7e5}, "rope_theta": 1}, 7e5),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}, 1e6),
    ],
)
def test_the_rotary_base_is_found_wherever_it_stands(rope, theta):
    assert ConfigReader(rope, where="here").rope_theta() == theta


def test_labels_are_named_or_numbered():
    assert ConfigReader({"id2label": {"0": "a", "1": "b", "2": "c"}}, where="here").labels() == 3
    assert ConfigReader({"num_labels": 5, "id2label": None}, where="here").labels() == 5
    assert ConfigReader({}, where="here").labels() == 2


def test_heads_divide_the_width_unless_they_have_a_size_of_their_own():
    assert ConfigReader({}, where="here").head_size(4096, 32) == 128
    with pytest.raises(RecipeError, match=r"^here: .*cannot be divided over the heads \(seen width 4096, 33 heads"):
        ConfigReader({}, where="here").head_size(4096, 33)


def test_names_of_labels_are_in_the_order_of_the_classes_and_numbers_are_none():
    def names(keys):
        return ConfigReader(keys, where="here").label_names()

    assert names({"id2label": {"1": "b", "0": "a", "2": "c"}}) == ("a", "b", "c")
    assert names({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}) is None
    assert names({"id2label": {"0": "a", "2": "c"}}) is None
    assert names({"num_labels": 2}) is None
