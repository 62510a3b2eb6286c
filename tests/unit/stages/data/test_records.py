from __future__ import annotations

import codecs
import gzip
import io
import json
import tokenize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import DataError
from trainwright.spec.recipe_data import FilesSource, JsonlSource, ParquetSource, PythonStdlibSource, TextSource
from trainwright.stages.data import records
from trainwright.stages.data.records import FileRange, Record, decode_python, read_records
from trainwright.stages.data.sources import InputFile


def read(path, source, **span):
    file = InputFile(source=0, name=path.name, location=str(path), size_bytes=path.stat().st_size, version="")
    return list(read_records(FileRange(file=file, **span), source))


def written(path, data):
    path.write_bytes(data)
    return path


FILES = FilesSource(kind="files", paths=("x",))
JSONL = JsonlSource(kind="jsonl", paths=("x",))
PARQUET = ParquetSource(kind="parquet", paths=("x",))


def test_a_file_is_one_document(tmp_path):
    path = written(tmp_path / "a.txt", "héllo\n".encode())
    assert read(path, FILES) == [Record("", 7, text="héllo\n")]


def test_bytes_that_are_not_utf8_are_placed(tmp_path):
    path = written(tmp_path / "a.txt", b"fine until \xff here")
    assert read(path, FILES) == [Record(":byte 11", 17, problem="not UTF-8")]


# ----------------------------------------------------------------------------------------------------------- python
@pytest.mark.parametrize(
    "data",
    [
        "x = 'é'\n".encode(),
        codecs.BOM_UTF8 + "x = 'é'\r\n".encode(),
        "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
        "#!/bin/sh\n# vim: set fileencoding=cp1252 :\n'€'\n".encode("cp1252"),
    ],
)
def test_python_is_decoded_as_python_does(tmp_path, data):
    path = written(tmp_path / "a.py", data)
    with tokenize.open(path) as stream:
        expected = stream.read()
    assert decode_python(data).replace("\r\n", "\n") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"# coding: no-such-codec\n", "unknown or contradictory source encoding"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "unknown or contradictory source encoding"),
        (b"# coding: rot13\n", "unknown or contradictory source encoding"),
        (b"a\nb\nc = '\xff'\n", "not UTF-8"),
        (b"# coding: ascii\n#\n#\n#\xe9\n", "not ascii"),
    ],
)
def test_python_that_cannot_be_decoded_is_counted(tmp_path, data, problem):
    (record,) = read(written(tmp_path / "a.py", data), PythonStdlibSource(kind="python-stdlib"))
    assert record.text is None
    assert record.problem == problem


# ------------------------------------------------------------------------------------------------------------- text
@given(
    texts=st.lists(st.text(alphabet="ab\né", max_size=6), max_size=12), separator=st.sampled_from(["\n\n", "###", "é"])
)
def test_pieces_are_those_of_split_whatever_the_chunks(tmp_path_factory, texts, separator):
    data = separator.join(texts).encode()
    path = written(tmp_path_factory.mktemp("text") / "a.txt", data)
    source = TextSource(kind="text", paths=("x",), separator=separator)
    expected = data.split(separator.encode())
    expected = expected[:-1] if not expected[-1] else expected
    for chunk in (1, 2, 3, 7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "_CHUNK_BYTES", chunk)
            assert [record.text for record in read(path, source)] == [piece.decode() for piece in expected]


def test_windows_line_ends_separate_too(tmp_path):
    path = written(tmp_path / "a.txt", b"one\r\ntwo\r\n\r\nthree\r\n")
    found = read(path, TextSource(kind="text", paths=("x",)))
    assert [(r.position, r.text) for r in found] == [(", document 1", "one\r\ntwo"), (", document 2", "three\r\n")]


def test_a_broken_piece_does_not_take_its_neighbours_along(tmp_path):
    path = written(tmp_path / "a.txt", b"one\n\ntw\xffo\n\nthree")
    found = read(path, TextSource(kind="text", paths=("x",)))
    assert [r.text for r in found] == ["one", None, "three"]
    assert (found[1].position, found[1].problem) == (":byte 7", "not UTF-8")


# ------------------------------------------------------------------------------------------------------------ jsonl
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


def test_every_kind_of_broken_line_is_named_and_the_rest_is_read(tmp_path):
    path = written(tmp_path / "a.jsonl", codecs.BOM_UTF8 + b"\n".join(line for line, _ in LINES))
    found = read(path, JSONL)
    expected = [(f":{n}", problem) for n, (_, problem) in enumerate(LINES, 1) if problem != "skipped"]
    assert [(record.position, record.problem) for record in found] == expected
    assert [record.text for record in found if record.text is not None] == ["good", "last"]


def test_records_before_a_cut_are_kept_and_the_cut_is_counted(tmp_path):
    whole = gzip.compress(b"".join(json.dumps({"text": "t" * n}).encode() + b"\n" for n in range(3000)), 1)
    found = read(written(tmp_path / "a.jsonl.gz", whole[: len(whole) * 2 // 3]), JSONL)
    assert len(found) > 100
    assert [record.text for record in found[:-1]] == ["t" * n for n in range(len(found) - 1)]
    assert found[-1].problem == "truncated gzip"


@given(sizes=st.lists(st.integers(0, 12), max_size=20), step=st.integers(1, 30), end=st.booleans())
def test_ranges_read_each_line_exactly_once(tmp_path_factory, sizes, step, end):
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


# ---------------------------------------------------------------------------------------------------------- parquet
def parquet_bytes(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_rows_are_documents_whatever_the_type_of_text(tmp_path, kind):
    values = ["one", None, "drei ü"] + [f"row {n}" for n in range(3000)]
    table = (
        pa.array([v if v is None or pa.types.is_string(kind) else v.encode() for v in values], pa.binary()).cast(kind)
        if (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        else pa.array(values, kind)
    )
    found = read(written(tmp_path / "a.parquet", parquet_bytes(id=pa.array(range(len(values))), text=table)), PARQUET)
    assert [record.text for record in found] == values
    assert (found[1].position, found[1].problem) == (", row 1", "null text")


def test_a_row_that_is_not_utf8_is_counted(tmp_path):
    data = parquet_bytes(text=pa.array([b"fine", b"\xff"], pa.binary()))
    assert [record.problem for record in read(written(tmp_path / "a.parquet", data), PARQUET)] == [None, "not UTF-8"]


def test_compressed_parquet_is_unpacked_first(tmp_path):
    data = gzip.compress(parquet_bytes(text=["x"]))
    assert [record.text for record in read(written(tmp_path / "a.parquet.gz", data), PARQUET)] == ["x"]


def test_a_missing_column_names_those_there_are(tmp_path):
    path = written(tmp_path / "a.parquet", parquet_bytes(title=["x"], body=["y"]))
    with pytest.raises(
        DataError, match=r"a.parquet: this Parquet file has no column 'text' \(seen title, body\); set text_column"
    ):
        read(path, PARQUET)


def test_a_column_without_text_is_refused(tmp_path):
    path = written(tmp_path / "a.parquet", parquet_bytes(text=[1, 2]))
    with pytest.raises(DataError, match=r"column 'text' holds no text \(seen int64, expected string or binary\)"):
        read(path, PARQUET)


@pytest.mark.parametrize("keep", [0, 3, 50, -1, -20])
def test_damaged_parquet_is_counted(tmp_path, keep):
    path = written(tmp_path / "a.parquet", parquet_bytes(text=["word"] * 10)[:keep])
    assert [record.problem for record in read(path, PARQUET)] == ["damaged Parquet"]
