from __future__ import annotations

import codecs
import gzip
import json

from hypothesis import given
from hypothesis import strategies as st

from trainwright.spec.sections.corpus.sources import JsonlSource
from trainwright.testing.contract_source import SourceContract

JSONL = JsonlSource(kind="jsonl", paths=("x",))
LINES = [
    (b'{"text": "good"}', None),
    (b"{broken", "broken JSON"),
    (b"", "skipped"),
    (b"[1, 2]", "not a JSON object"),
    (b'{"other": 1}', "no key 'text'"),
    (b'{"text": 5}', "'text' is not a string"),
    (b'{"text": null}', "'text' is not a string"),
    (b'{"text": "\xff"}', "not UTF-8"),
    (b"[" * 100_000, "broken JSON"),
    (b'{"text": "last"}', None),
]


def test_every_kind_of_broken_line_is_named_and_the_rest_is_read(tmp_path, read, written):
    path = written(tmp_path / "a.jsonl", codecs.BOM_UTF8 + b"\n".join(line for line, _ in LINES))
    found = read(path, JSONL)
    expected = [(f":{n}", problem) for n, (_, problem) in enumerate(LINES, 1) if problem != "skipped"]
    assert [(record.position, record.problem) for record in found] == expected
    assert [record.text for record in found if record.text is not None] == ["good", "last"]


def test_records_before_a_cut_are_kept_and_the_cut_is_counted(tmp_path, read, written):
    whole = gzip.compress(b"".join(json.dumps({"text": "t" * n}).encode() + b"\n" for n in range(3000)), 1)
    found = read(written(tmp_path / "a.jsonl.gz", whole[: len(whole) * 2 // 3]), JSONL)
    assert len(found) > 100
    assert [record.text for record in found[:-1]] == ["t" * n for n in range(len(found) - 1)]
    assert found[-1].problem == "truncated gzip"


@given(sizes=st.lists(st.integers(0, 12), max_size=20), step=st.integers(1, 30), end=st.booleans())
def test_ranges_read_each_line_exactly_once(tmp_path_factory, sizes, step, end, read, written):
    lines = [json.dumps({"text": "x" * size}) for size in sizes]
    data = ("\n".join(lines) + ("\n" if end else "")).encode()
    path = written(tmp_path_factory.mktemp("ranges") / "a.jsonl", data)
    found = []
    for start in range(0, len(data), step):
        found += read(path, JSONL, start=start, stop=min(start + step, len(data)))
    assert [record.text for record in found] == ["x" * size for size in sizes]
    for record, line in zip(found, lines, strict=True):
        offset = int(record.position.removeprefix(":byte "))
        assert data[offset : offset + len(line)] == line.encode()


class TestJsonl(SourceContract):
    def keys(self):
        return {"kind": "jsonl", "text_key": "body"}

    def write(self, folder):
        (folder / "a.jsonl").write_text('{"body": "one"}\n\n{"body": "tw\\u00f6"}\n{"other": 1}\n')
        (folder / "b.ndjson").write_text('{"body": "three"}')
        (folder / "c.txt").write_text("no JSON lines")
        return ["one", "twö", "three"]
