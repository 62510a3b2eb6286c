from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.token_splits import DOCUMENTS, END, made
from trainwright.artifact.shard_files import token_dtype
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError


@settings(max_examples=60, deadline=None)
@given(documents=DOCUMENTS, shard_tokens=st.integers(1, 40), data=st.data())
def test_any_window_reads_as_from_one_list(tmp_path_factory, documents, shard_tokens, data):
    split = made(tmp_path_factory.mktemp("d"), documents, shard_tokens=shard_tokens).splits["train"]
    stream = [(token, number) for number, ids in enumerate(documents) for token in (*ids, END)]
    assert (split.tokens, split.documents) == (len(stream), len(documents))
    assert split.text_bytes == sum(2 * len(ids) for ids in documents)
    start = data.draw(st.integers(0, len(stream)))
    stop = data.draw(st.integers(start, len(stream)))
    window = stream[start:stop]
    assert split.read(start, stop).tolist() == [token for token, _ in window]
    ids = split.document_ids(start, stop)
    assert ids.dtype == np.int32
    assert ids.tolist() == [number - window[0][1] for _, number in window]
    assert split.document_ends.tolist() == np.cumsum([len(ids) + 1 for ids in documents]).tolist()
    assert split.document_bytes.tolist() == [2 * len(ids) for ids in documents]


@pytest.mark.parametrize(("vocabulary", "name"), [(65_536, "uint16"), (65_537, "uint32")])
def test_ids_take_as_little_room_as_they_can(tmp_path, vocabulary, name):
    dataset = made(tmp_path, [[vocabulary - 1]], vocabulary=vocabulary)
    assert dataset.dtype == np.dtype(name) == token_dtype(vocabulary)
    assert dataset.splits["train"].read(0, 1).tolist() == [vocabulary - 1]
    assert dataset.end_of_text_id == END
    assert dataset.tokenizer_path == tmp_path / "tokenizer.json"


def test_reading_maps_the_files_and_copies_the_window(tmp_path):
    split = made(tmp_path, [[1, 2, 3]]).splits["train"]
    assert isinstance(split.document_ends.base, np.memmap) or isinstance(split.document_ends, np.memmap)
    window = split.read(0, 2)
    window[:] = 9  # a copy: the file is read-only
    assert split.read(0, 2).tolist() == [1, 2]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 6), (3, 2)])
def test_a_window_outside_the_split_is_our_own_mistake(tmp_path, start, stop):
    split = made(tmp_path, [[1, 2, 3, 4]]).splits["train"]
    for read in (split.read, split.document_ids):
        with pytest.raises(IndexError, match="split 'train', which has 5 tokens"):
            read(start, stop)


def test_a_split_without_documents(tmp_path):
    split = made(tmp_path, []).splits["train"]
    assert (split.tokens, split.documents, split.text_bytes) == (0, 0, 0)
    assert split.read(0, 0).tolist() == split.document_ids(0, 0).tolist() == []
    assert len(split.document_ends) == len(split.document_bytes) == 0


# ------------------------------------------------------------------------------------------------------------- damage
def tokens(directory):
    return directory / "train-00000.tokens"


def index(directory):
    return directory / "train-00000.index"


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


DAMAGE = {
    "tokens missing": (lambda d: tokens(d).unlink(), r"train-00000.tokens: a token shard is missing"),
    "index missing": (lambda d: index(d).unlink(), r"train-00000.index: the index of a token shard is missing"),
    "odd size": (
        lambda d: edit(tokens(d), lambda b: b[:-1]),
        r"no whole number of ids \(seen 9 bytes, expected a multiple of 2",
    ),
    "cut short": (
        lambda d: edit(tokens(d), lambda b: b[:-2]),
        r"does not hold what its index says \(seen 4 tokens, expected 5",
    ),
    "emptied": (lambda d: edit(tokens(d), lambda b: b""), r"does not hold what its index says \(seen 0 tokens"),
    "wrong magic": (
        lambda d: edit(index(d), lambda b: b"PK" + b[2:]),
        r"not an index of a token shard \(seen b'PKINDEX1'",
    ),
    "short header": (lambda d: edit(index(d), lambda b: b[:10]), r"not an index of a token shard"),
    "index cut": (
        lambda d: edit(index(d), lambda b: b[:-8]),
        r"2 documents need another size \(seen 40 bytes, expected 48",
    ),
    "ends fall": (
        lambda d: edit(index(d), lambda b: b[:16] + struct.pack("<2Q", 5, 3) + b[32:]),
        r"the documents' ends do not ascend",
    ),
    "ends at 0": (
        lambda d: edit(index(d), lambda b: b[:16] + struct.pack("<2Q", 0, 5) + b[32:]),
        r"the documents' ends do not ascend",
    ),
    "no description": (
        lambda d: (d / "dataset.json").unlink(),
        r"no dataset here \(expected a directory with dataset.json",
    ),
    "torn description": (lambda d: edit(d / "dataset.json", lambda b: b[:50]), r"damaged dataset description"),
    "not an object": (lambda d: edit(d / "dataset.json", lambda b: b"[]"), r"damaged dataset description"),
    "key missing": (
        lambda d: edit(d / "dataset.json", lambda b: b.replace(b'"dtype"', b'"type"')),
        r"damaged dataset description",
    ),
    "other format": (
        lambda d: edit(d / "dataset.json", lambda b: b.replace(b'"format": 1', b'"format": 2')),
        r"unknown layout .*format 2, uint16",
    ),
    "other dtype": (
        lambda d: edit(d / "dataset.json", lambda b: b.replace(b"uint16", b"uint32")),
        r"unknown layout .*format 1, uint32",
    ),
    "contradiction": (
        lambda d: edit(d / "dataset.json", lambda b: b.replace(b'"documents": 2', b'"documents": 3')),
        r"contradicts dataset.json \(seen 5 tokens, 2 documents, expected 5 tokens, 3 documents",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_structural_damage_is_named(tmp_path, damage):
    made(tmp_path, [[1, 2], [3]])
    change, line = DAMAGE[damage]
    change(tmp_path)
    with pytest.raises(DataError, match=line) as caught:
        TokenDataset.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_id_outside_the_vocabulary_is_never_given_out(tmp_path):
    split = made(tmp_path, [[1, 2], [3]]).splits["train"]
    with tokens(tmp_path).open("r+b") as stream:
        stream.seek(6)
        stream.write(struct.pack("<H", 300))
    assert split.read(0, 3).tolist() == [1, 2, END]
    with pytest.raises(
        DataError,
        match=r"train-00000.tokens, token 3: .* an id outside the vocabulary \(seen 300, expected below 300\)",
    ):
        split.read(1, 5)
