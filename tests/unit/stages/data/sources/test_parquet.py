from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import ParquetSource
from trainwright.testing.contract_source import SourceContract

PARQUET = ParquetSource(kind="parquet", paths=("x",))


def parquet_bytes(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_rows_are_documents_whatever_the_type_of_text(tmp_path, kind, read, written):
    values = ["one", None, "drei ü"] + [f"row {n}" for n in range(3000)]
    table = (
        pa.array([v if v is None or pa.types.is_string(kind) else v.encode() for v in values], pa.binary()).cast(kind)
        if (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
        else pa.array(values, kind)
    )
    found = read(written(tmp_path / "a.parquet", parquet_bytes(id=pa.array(range(len(values))), text=table)), PARQUET)
    assert [record.text for record in found] == values
    assert (found[1].position, found[1].problem) == (", row 1", "null text")


def test_a_row_that_is_not_utf8_is_counted(tmp_path, read, written):
    data = parquet_bytes(text=pa.array([b"fine", b"\xff"], pa.binary()))
    assert [record.problem for record in read(written(tmp_path / "a.parquet", data), PARQUET)] == [None, "not UTF-8"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64()])
def test_labels_are_of_another_column(tmp_path, kind, read, written):
    labels = [3, None, 5] if pa.types.is_integer(kind) else pa.array(["3", " ", "5"]).cast(kind)
    data = parquet_bytes(text=["one", "two", None], label=pa.array(labels, kind))
    section = ParquetSource(kind="parquet", paths=("x",), label_column="label")
    found = read(written(tmp_path / "a.parquet", data), section)
    assert [(each.text, each.label, each.problem) for each in found] == [
        ("one", "3", None),
        (None, None, "'label' is empty"),
        (None, None, "null text"),
    ]


@pytest.mark.parametrize(("column", "told"), [("kind", "no column 'kind'.*set label_column"), ("score", "no labels")])
def test_a_column_that_holds_no_labels_is_refused(tmp_path, column, told, read, written):
    path = written(tmp_path / "a.parquet", parquet_bytes(text=["one"], score=[0.5]))
    with pytest.raises(DataError, match=told):
        read(path, ParquetSource(kind="parquet", paths=("x",), label_column=column))


def test_compressed_parquet_is_unpacked_first(tmp_path, read, written):
    data = gzip.compress(parquet_bytes(text=["x"]))
    assert [record.text for record in read(written(tmp_path / "a.parquet.gz", data), PARQUET)] == ["x"]


def test_a_missing_column_names_those_there_are(tmp_path, read, written):
    path = written(tmp_path / "a.parquet", parquet_bytes(title=["x"], body=["y"]))
    with pytest.raises(
        DataError, match=r"a.parquet: this Parquet file has no column 'text' \(seen title, body\); set text_column"
    ):
        read(path, PARQUET)


def test_a_column_without_text_is_refused(tmp_path, read, written):
    path = written(tmp_path / "a.parquet", parquet_bytes(text=[1, 2]))
    with pytest.raises(DataError, match=r"column 'text' holds no text \(seen int64, expected string or binary\)"):
        read(path, PARQUET)


@pytest.mark.parametrize("keep", [0, 3, 50, -1, -20])
def test_damaged_parquet_is_counted(tmp_path, keep, read, written):
    path = written(tmp_path / "a.parquet", parquet_bytes(text=["word"] * 10)[:keep])
    assert [record.problem for record in read(path, PARQUET)] == ["damaged Parquet"]


class TestParquet(SourceContract):
    def keys(self):
        return {"kind": "parquet", "text_column": "body"}

    def write(self, folder):
        (folder / "a.parquet").write_bytes(parquet_bytes(body=["one", None, "two"], id=[1, 2, 3]))
        (folder / "b.parquet").write_bytes(parquet_bytes(body=["three"]))
        return ["one", "two", "three"]
