"""Prompts are counted as the tokenizer counts them, and compared with the room that they leave for an answer."""

from __future__ import annotations

import pytest

from trainwright.artifact.prompts import prompt_problem
from trainwright.testing.artifacts import train_tokenizer


@pytest.fixture
def tokenizer(tmp_path):
    """One token per letter z, which stands in no text that it was trained on."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer(["some words"], vocabulary=270).save(str(path))
    return path


def test_a_prompt_needs_room_for_one_token_of_an_answer(tokenizer) -> None:
    assert prompt_problem("z" * 31, tokenizer, context_tokens=32) is None
    problem = prompt_problem("z" * 32, tokenizer, context_tokens=32)
    assert problem == "this prompt has 32 tokens, and the context of 32 holds prompt and answer"


def test_without_a_tokenizer_only_an_empty_prompt_is_refused() -> None:
    assert prompt_problem("z" * 10_000, None, context_tokens=32) is None
    assert prompt_problem("", None, context_tokens=32) == "an empty prompt cannot be completed"
