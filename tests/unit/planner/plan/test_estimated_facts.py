"""What is said of a dataset before it is there."""

from __future__ import annotations

import json

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.errors import DataError
from trainwright.planner.plan.estimated_facts import (
    asked_vocabulary,
    bytes_per_token,
    dataset_assumptions,
    deviation,
    estimated_facts,
)
from trainwright.planner.plan.workload import resolve, validation_tokens
from trainwright.spec.recipe import Recipe
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


def pictures(**train) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "pictures",
            "task": {"name": "classify-images", "labels": ["a", "b"]},
            "model": {"family": "vit", "layers": 1, "width": 8, "heads": 1, "image_size": 8, "patch_size": 4},
            "data": {"sources": [{"kind": "images", "paths": ["x"]}], "images": {"size": 8}},
            "train": {"sequence_tokens": 5, "batch_tokens": 50, "duration": "2 epochs"} | train,
        }
    )


def test_images_are_counted_by_their_files_and_measured_in_tokens_of_an_image() -> None:
    recipe = pictures()
    facts = estimated_facts(recipe, corpus_bytes=200 * 8 * 8 * 3)
    assert (facts.train_documents, facts.validation_documents) == (140, 30)
    assert resolve(recipe, facts, precision="fp32").steps == 2 * 140 // 10
    assert validation_tokens(recipe, facts) == 30 * 5
    assert validation_tokens(pictures(validation={"tokens": 50}), facts) == 50
    assert 0 < deviation(recipe, facts) < 0.2
    labels = {assumption.key: assumption.source for assumption in dataset_assumptions(recipe, facts)}
    assert labels["epoch"] == "estimated: as many images as files"
    assert "vocabulary" not in labels
