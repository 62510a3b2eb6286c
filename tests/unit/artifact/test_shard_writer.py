"""What is written is what the format says, however documents are handed over."""

from __future__ import annotations

import json
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.token_splits import DOCUMENTS, END, made
from trainwright.artifact.shard_writer import SplitWriter, write_dataset


@given(documents=DOCUMENTS, shard_tokens=st.integers(1, 40), cut=st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_adding_many_at_once_writes_the_same_files(tmp_path_factory, documents, shard_tokens, cut):
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    made(one, documents, shard_tokens=shard_tokens)
    writer = SplitWriter(other, "train", vocabulary=300, end_of_text_id=END, shard_tokens=shard_tokens)
    for group in (documents[:cut], documents[cut:]):
        tokens = np.array([t for ids in group for t in (*ids, END)], np.uint16)
        ends = np.cumsum([len(ids) + 1 for ids in group], dtype=np.uint64)
        writer.extend(tokens, ends, np.array([2 * len(ids) for ids in group], np.uint64))
    entry = writer.close()
    write_dataset(other, vocabulary=300, end_of_text="<end>", end_of_text_id=END, splits={"train": entry})
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {p.name: p.read_bytes() for p in other.iterdir()}


def test_the_layout_is_as_documented(tmp_path):
    made(tmp_path, [[1, 2], [3]])
    assert (tmp_path / "train-00000.tokens").read_bytes() == struct.pack("<5H", 1, 2, END, 3, END)
    assert (tmp_path / "train-00000.index").read_bytes() == struct.pack("<8sQ2Q2Q", b"TWINDEX1", 2, 3, 5, 4, 2)
    assert json.loads((tmp_path / "dataset.json").read_text()) == {
        "format": 1,
        "vocabulary": 300,
        "dtype": "uint16",
        "end_of_text": {"text": "<end>", "id": END},
        "tokenizer": "tokenizer.json",
        "splits": {"train": {"tokens": 5, "documents": 2, "text_bytes": 6, "shards": [{"tokens": 5, "documents": 2}]}},
    }
