from __future__ import annotations

import errno
import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import MachineError
from trainwright.stages.data.parts import (
    TERMINATOR,
    Document,
    bucket_of,
    publish,
    publish_part,
    read_documents,
    read_footer,
    read_json,
    read_section,
)


def document(text, place="a.txt"):
    return Document(hashlib.sha256(text).digest(), place, text)


@given(texts=st.lists(st.text().map(lambda text: text.encode("utf-8", "replace")), max_size=20), bits=st.integers(0, 6))
def test_a_part_gives_back_what_went_in_bucket_by_bucket(tmp_path_factory, texts, bits):
    path = tmp_path_factory.mktemp("parts") / "a.part"
    buckets = {}
    for number, text in enumerate(texts):
        item = document(text, f"file é {number}")
        buckets.setdefault(bucket_of(item.digest, bits), []).append(item)
    publish_part(path, buckets, {"records": len(texts)})
    footer = read_footer(path)
    assert footer["records"] == len(texts)
    assert {bucket: list(read_section(path, *span)) for bucket, span in footer["sections"].items()} == buckets


def test_label_and_group_come_back(tmp_path):
    items = [
        Document(bytes([n]) * 32, "é", b"text", *marks) for n, marks in enumerate((("ü", "g"), (None, "g"), ("l",)))
    ]
    path = tmp_path / "a.part"
    publish_part(path, {0: items}, {})
    assert list(read_section(path, *read_footer(path)["sections"][0])) == items


def test_buckets_in_order_are_digests_in_order():
    digests = sorted(hashlib.sha256(bytes([n])).digest() for n in range(200))
    for bits in range(13):
        assert [bucket_of(digest, bits) for digest in digests] == sorted(bucket_of(digest, bits) for digest in digests)
        assert bucket_of(b"\xff" * 32, bits) == (1 << bits) - 1


def test_an_incomplete_part_counts_as_absent(tmp_path):
    path = tmp_path / "a.part"
    assert read_footer(path) is None
    publish_part(path, {0: [document(b"some text")]}, {"records": 1})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert read_footer(path) is None


def test_a_torn_json_file_counts_as_absent(tmp_path):
    (tmp_path / "a.json").write_text('{"half": ')
    assert read_json(tmp_path / "a.json") is None
    assert read_json(tmp_path / "b.json") is None


def test_documents_are_told_apart_by_a_byte_no_text_has(tmp_path):
    texts = ["", "ÿ\n", "\x00"]
    publish(tmp_path / "a.docs", [text.encode() + TERMINATOR for text in texts])
    assert [text.decode() for text in read_documents(tmp_path / "a.docs")] == texts
    publish(tmp_path / "b.docs", [])
    assert read_documents(tmp_path / "b.docs") == []


def test_a_full_disk_is_one_line_and_leaves_nothing_half_done(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="the disk is full; free some space and run the same command"):
        publish(tmp_path / "a.part", [b"data"])
    assert list(tmp_path.iterdir()) == []
