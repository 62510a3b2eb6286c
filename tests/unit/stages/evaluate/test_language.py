"""Documents come back as the texts that they were; comparing needs no training split."""

from __future__ import annotations

import pytest

from fixtures import tiny_models
from trainwright.artifact.shards import TokenDataset
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.language import compare, texts
from trainwright.testing.artifacts import make_dataset

TEXTS = ["alpha beta", "def return (x)", "größe = 3\n", "  ", "one more"]


@pytest.fixture
def dataset(tmp_path) -> TokenDataset:
    return TokenDataset.open(make_dataset(tmp_path, {"train": TEXTS, "validation": TEXTS[:2]}).path)


@pytest.mark.parametrize("read_tokens", [1, 50, 1 << 20])
def test_texts_are_the_documents(dataset, monkeypatch, read_tokens):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(dataset.tokenizer_path))
    monkeypatch.setattr("trainwright.stages.evaluate.language.READ_TOKENS", read_tokens)
    assert [text.decode() for text in texts(dataset.splits["train"], TokenBytes(tokenizer))] == TEXTS


def test_completions_and_baselines_of_a_model(dataset):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(dataset.tokenizer_path))
    recipe = Recipe.model_validate(
        {
            "name": "tiny",
            "model": {"layers": 1, "width": 16, "heads": 2},
            "data": {"sources": [{"kind": "python-stdlib"}]},
            "evaluate": {"prompts": ["alpha"], "max_new_tokens": 3},
        }
    )
    model = tiny_models.decoder(vocabulary=dataset.vocabulary)
    result = compare(recipe, dataset, {"validation": dataset.splits["validation"]}, model, tokenizer)
    assert [completion["prompt"] for completion in result.completions] == ["alpha"]
    assert {"gzip -9", "xz -6"} < {entry["name"] for entry in result.baselines["validation"]}
    assert result.searched_bytes == sum(len(text.encode()) for text in TEXTS) + len(TEXTS) + 1
