"""What is said of a dataset before it is there."""

from __future__ import annotations

import json

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.errors import DataError
from trainwright.planner.plan.estimated_facts import asked_vocabulary, bytes_per_token, estimated_facts
from trainwright.testing.artifacts import train_tokenizer


def test_a_token_stands_for_more_bytes_in_a_larger_vocabulary() -> None:
    assert bytes_per_token(256) == 1, "the bytes themselves"
    assert bytes_per_token(50_257) == pytest.approx(4.05, abs=0.01)
    assert bytes_per_token(1024) < bytes_per_token(4096) < bytes_per_token(32_768)


def test_a_pretrained_tokenizer_says_its_vocabulary(tmp_path) -> None:
    tokenizer = train_tokenizer(["some words of text"], vocabulary=270)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    recipe = planned_recipe(tmp_path, f"data.tokenizer={{kind: pretrained, path: {path}}}")
    assert asked_vocabulary(recipe) == tokenizer.get_vocab_size() != recipe.data.tokenizer.vocabulary
    assert estimated_facts(recipe, corpus_bytes=None).vocabulary == tokenizer.get_vocab_size()
    path.write_text(json.dumps({"model": {}}))
    with pytest.raises(DataError, match="no tokenizer.json with a vocabulary"):
        asked_vocabulary(recipe)
