"""What is written is what the format says, however documents are handed over."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.token_splits import DOCUMENTS, END, made
from trainwright.artifact.shard_writer import SplitWriter, image_writer, write_dataset, write_image_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.spec.parts.images import ImageForm


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


def test_images_are_bytes_with_their_classes_and_what_others_need_to_see_them(tmp_path):
    writer = image_writer(tmp_path, "train", shard_values=8)
    ends = np.array([4, 8, 12], np.uint64)
    writer.extend(np.arange(12, dtype=np.uint8), ends, np.full(3, 4, np.uint64), labels=np.array([1, 0, 1], np.uint16))
    form = ImageForm(size=2, channels=1, mean=(0.25,), std=(0.5,))
    write_image_dataset(tmp_path, form, splits={"train": writer.close()}, labels=("cat", "dog"))
    assert (tmp_path / "train-00000.tokens").read_bytes() == bytes(range(8))
    assert (tmp_path / "train-00001.tokens").read_bytes() == bytes(range(8, 12))
    dataset = TokenDataset.open(tmp_path)
    split = dataset.splits["train"]
    assert (dataset.kind, dataset.labels, dataset.images, split.documents) == ("images", ("cat", "dog"), form, 3)
    assert split.read(4, 12).tolist() == list(range(4, 12))
    assert split.document_labels.tolist() == [1, 0, 1]
    processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert processor["size"] == {"height": 2, "width": 2}
    assert (processor["image_mean"], processor["image_std"]) == ([0.25] * 3, [0.5] * 3)
    record = json.loads((tmp_path / "dataset.json").read_text())
    record["images"]["size"] = "two"
    (tmp_path / "dataset.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="not a valid ImageForm"):
        TokenDataset.open(tmp_path)
