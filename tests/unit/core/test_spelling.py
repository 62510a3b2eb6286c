from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.spelling import ascii_twin, counted, did_you_mean, foreign_characters, with_article


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("m\u043edel", "model"),
        ("\u0440lan", "plan"),
        ("\u2013tokens", "--tokens"),
        ("\u2212q", "-q"),
        ("ｂｆ１６", "bf16"),
        ("b\u200bf16", "bf16"),
        ("\u039f", "O"),
        ("\u201cx\u201d", '"x"'),
    ],
)
def test_look_alikes_have_an_ascii_twin(text, twin):
    assert ascii_twin(text) == twin


def test_the_character_is_named():
    assert foreign_characters("m\u043ed\u043el") == "what was written has '\u043e' (U+043E, CYRILLIC SMALL LETTER O)"
    assert foreign_characters("b\u200bf16") == "what was written has (U+200B, ZERO WIDTH SPACE)"
    assert foreign_characters("model") is None


@given(st.text(st.characters(codec="ascii")))
def test_ascii_is_its_own_twin(text):
    assert ascii_twin(text) == text and foreign_characters(text) is None


def test_letters_that_look_like_none_are_no_look_alikes():
    assert foreign_characters("模型 données ж") is None


def test_did_you_mean_stays_silent_for_strangers():
    assert did_you_mean("xyzzy", ["join", "split"]) is None
    assert did_you_mean("jion", ["join"]) == "did you mean 'join'?"


def test_a_name_that_only_looks_like_a_known_one_says_which_character_is_foreign():
    hint = did_you_mean("m\u043edel", ["model", "data"])
    assert hint == "did you mean 'model'? what was written has '\u043e' (U+043E, CYRILLIC SMALL LETTER O)"
    assert did_you_mean("\u2013\u2013", ["model"]) == "what was written has '\u2013' (U+2013, EN DASH)"
    assert did_you_mean("模型", ["model"]) is None


def test_the_article_follows_the_sound() -> None:
    nouns = ("audit", "export", "evaluation", "plan")
    assert [with_article(noun) for noun in nouns] == ["an audit", "an export", "an evaluation", "a plan"]


def test_a_noun_agrees_with_its_number():
    assert [counted(count, "file") for count in (0, 1, 2, 2000)] == ["0 files", "1 file", "2 files", "2,000 files"]
