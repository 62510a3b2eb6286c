"""Texts of pairs, from lines to a dataset: each a document, those of a record one behind the other."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.stages.data.pairs.encode import NO_TOKEN


def texts_of(done) -> list[list[str]]:
    dataset = TokenDataset.open(done.out)
    split, tokenizer = dataset.splits["train"], Tokenizer.from_file(str(dataset.tokenizer_path))
    assert dataset.kind == "pairs"
    ends = split.document_ends.tolist()
    texts = [tokenizer.decode(split.read(a, b - 1).tolist()) for a, b in zip([0, *ends], ends, strict=False)]
    return sorted(texts[at : at + 3] for at in range(0, len(texts), 3))


def test_a_dataset_of_pairs_is_read_back(prepare, section, tmp_path) -> None:
    rows = [
        {"anchor": "one", "positive": "1", "negative": ["2", "3"]},
        {"anchor": "\ufefftwo", "positive": "2", "negative": "1"},
        {"anchor": "two", "positive": "2", "negative": "1"},
        {"anchor": "three"},
        {"anchor": "four", "positive": "4"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "pairs", "paths": [str(tmp_path / "a.jsonl")], "negative_key": "negative", "negatives": 1}
    done = prepare(section(source))
    assert texts_of(done) == [["one", "1", "2"], ["two", "2", "1"]]


def test_texts_without_a_token_are_dropped_and_told(prepare, section, tmp_path) -> None:
    tokenizer = Tokenizer(models.BPE({"<|endoftext|>": 0, "a": 1, "b": 2}, []))  # no token for other letters
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = {"kind": "pairs", "paths": [str(tmp_path / "a.jsonl")]}
    (tmp_path / "a.jsonl").write_text(json.dumps({"anchor": "a", "positive": "zz"}) + "\n")
    kept = {"tokenizer": {"kind": "pretrained", "path": str(tmp_path / "tokenizer.json")}}
    with pytest.raises(DataError, match=f"no pair of the train split is left .*{NO_TOKEN}"):
        prepare(section(source, **kept))
