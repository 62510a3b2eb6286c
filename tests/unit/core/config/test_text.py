from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.config.text import MAX_DEPTH, read_json, read_yaml, scalar
from trainwright.core.config.tree import ValueOrigin
from trainwright.core.errors import RecipeError


def at(line, column):
    return ValueOrigin(layer="file", where=f"{line + 1}:{column + 1}")


def yaml_of(text):
    problems = []
    node = read_yaml(text, at, problems)
    assert not problems
    return node.plain()


# The example tables of YAML 1.2.2, section 10.3.2, and the words of YAML 1.1 that mean something else there.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e21", 1e21),
        ("+12e03", 12000.0),
        ("-2E+05", -200000.0),
        (".5", 0.5),
        ("0.", 0.0),
        ("0o17", 15),
        ("0x3A", 58),
        ("-19", -19),
        ("017", 17),
        ("12", 12),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("Off", "Off"),
        ("y", "y"),
        ("2026-08-01", "2026-08-01"),
        ("-.INF", -math.inf),
        (".inf", math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("<<", "<<"),
        ("=", "="),
        ("e5", "e5"),
        ("1e", "1e"),
        (".", "."),
        ("0b11", "0b11"),
        ("9" * 5000, math.inf),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_number():
    assert math.isnan(scalar(".nan"))


def test_quoted_and_block_texts_stay_texts():
    text = "a: \"no\"\nb: '3'\nc: |\n  1\nd: !!str 5\ne: 5"
    assert yaml_of(text) == {"a": "no", "b": "3", "c": "1\n", "d": "5", "e": 5}


def test_keys_are_always_texts():
    assert yaml_of("1: a\ntrue: b\n~: c\n") == {"1": "a", "true": "b", "~": "c"}


def test_an_empty_text_is_null():
    assert yaml_of("# only a comment\n") is None


def test_a_member_stands_where_its_key_stands():
    node = read_yaml("a: 1\nb:\n  - x\n  - c:   {d: 4}\n", at, [])
    inner = node.content["b"].content[1]
    assert str(node.content["b"].origin) == "2:1"
    assert str(node.content["b"].content[0].origin) == "3:5"
    assert str(inner.content["c"].origin) == "4:5"
    assert str(inner.content["c"].content["d"].origin) == "4:11"


@pytest.mark.parametrize("read", [read_yaml, read_json])
def test_a_key_written_twice_names_both_places(read):
    problems = []
    node = read('{"a": {"b": 1,\n "b": 2}, "c": 3, "c": 4}', at, problems)
    assert [str(problem) for problem in problems] == [
        "2:2: a.b: written twice (expected one value; the first is at 1:8)",
        "2:19: c: written twice (expected one value; the first is at 2:11)",
    ]
    assert node.plain() == {"a": {"b": 1}, "c": 3}


def test_a_syntax_error_shows_the_line_with_a_caret():
    with pytest.raises(RecipeError) as caught:
        read_yaml("train:\n  lr: 3: 4\n", at, [])
    assert str(caught.value) == "2:8: not valid YAML: mapping values are not allowed here\n      lr: 3: 4\n           ^"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 1", "spaces, not tabs"),
        ("a: [1, 2", "while parsing a flow sequence"),
        ("path: *.py", "quotes"),
        ("a: &x 1\nb: *x", "anchors and aliases are not part of a recipe"),
        ("a: !!python/object/apply:os.system [ls]", "tags are not part"),
        ("a: !!float 3", "remove !!float"),
        ("a: !!set {b}", "remove !!set"),
        ("? [a, b]\n: 1", "a key that is not a word"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: \x07", "U+0007"),
        ("a: " + "[" * (MAX_DEPTH + 1), "nested too deep"),
        ("a: " + "[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_left_out_is_refused_with_a_reason(text, hint):
    with pytest.raises(RecipeError) as caught:
        read_yaml(text, at, [])
    assert hint in str(caught.value)


def test_a_tower_of_aliases_never_grows():
    text = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(RecipeError, match="anchors"):
        read_yaml(text, at, [])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        # Python points at the comma from 3.13 on, before that at what follows.
        ('{"a": 1,}', f"1:{8 if sys.version_info >= (3, 13) else 9}: not valid JSON"),
        ('{"a": NaN}', "not a JSON number"),
        ("", "not valid JSON"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
    ],
)
def test_broken_json_is_refused(text, hint):
    with pytest.raises(RecipeError) as caught:
        read_json(text, at, [])
    assert hint in str(caught.value)


finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read_json(text, at, []).plain() == json.loads(text)


printable = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"], exclude_characters="\ufeff\u2028\u2029")
)


@given(st.dictionaries(printable, st.integers() | st.booleans() | printable | st.lists(printable), min_size=1))
def test_json_is_yaml(value):
    assert yaml_of(json.dumps(value, ensure_ascii=False)) == value


def test_a_tab_is_one_line_because_a_line_with_it_would_not_show_it():
    with pytest.raises(RecipeError) as caught:
        read_yaml("model:\n\tlayers: 2\n", at, [])
    assert str(caught.value) == "2:1: not valid YAML: a tab; indent with spaces, not tabs"


@pytest.mark.parametrize("text", ["{tp:3}", "layout: {tp:3}", "{dp_shard: 2, tp:3}"])
def test_a_colon_without_a_space_is_named(text) -> None:
    with pytest.raises(RecipeError, match="a key without a value .*'tp:3'.*YAML wants a space behind the colon: tp: 3"):
        yaml_of(text)


def test_a_quoted_key_and_a_key_without_a_value_stay_as_they_are() -> None:
    assert yaml_of('{"a:b": , c: }') == {"a:b": None, "c": None}
