"""What a small read tells is true of the corpus: labels that the dataset will have, sources without a document."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import JsonlSource, ParquetSource, PathsSection
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus import head
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange, RawDocument
from trainwright.stages.data.corpus.head import FILES, labels_at_head, unusable_source
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.jsonl import HEAD_BYTES


def section(*paths: Path | str, kind: str = "jsonl", **keys: Any) -> DataSection:
    sources = [{"kind": kind, "paths": [str(path)]} for path in paths]
    labelled = [source | ({"label_key": "label"} if kind == "jsonl" else {}) for source in sources]
    return DataSection.model_validate({"sources": labelled} | keys)


def write(path: Path, *rows: tuple[str, object]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return path


def test_labels_of_documents_that_are_kept(tmp_path) -> None:
    rows = [("one text", "ham"), ("other", 3), ("one text", "again"), ("", "blank"), ("no label", None)]
    path = write(tmp_path / "a.jsonl", *rows)
    with path.open("a") as stream:
        stream.write("no JSON\n")
    assert labels_at_head(section(path)) == ("3", "ham")
    assert labels_at_head(section(path, clean={"min_characters": 6})) == ("ham",)


def test_no_more_than_the_head_of_the_first_file_is_read(tmp_path) -> None:
    long = "x" * (HEAD_BYTES // 2)
    write(tmp_path / "a.jsonl", (long, "first"), (long[1:], "cut"), ("short", "behind"))
    write(tmp_path / "b.jsonl", ("text", "second"))
    assert labels_at_head(section(tmp_path)) == ("first",)
    assert labels_at_head(section(tmp_path / "b.jsonl", tmp_path / "a.jsonl")) == ("second",)


def test_where_it_is_not_sure_there_are_none(tmp_path) -> None:
    path = write(tmp_path / "a.jsonl", ("text", "ham"))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert labels_at_head(section(packed)) == ("ham",)
    packed.write_bytes(packed.read_bytes()[:20])
    assert labels_at_head(section(packed)) == ()
    assert labels_at_head(section("https://example.org/a.jsonl")) == ()
    assert labels_at_head(section(path, kind="files")) == ()
    assert labels_at_head(section(path, clean={"filters": ["textwrap:dedent"]})) == ()
    with pytest.raises(DataError, match="no such file"):
        labels_at_head(section(tmp_path / "gone.jsonl"))


def refusal(kind: type[PathsSection], path: Path, **keys: str) -> str:
    name = "parquet" if kind is ParquetSource else "jsonl"
    return str(unusable_source(2, kind.model_validate({"kind": name, "paths": [str(path)]} | keys)) or "")


def test_a_source_without_a_document_is_refused_with_the_first_record(tmp_path) -> None:
    write(tmp_path / "a.jsonl", ("one", 1), ("two", 2))
    assert refusal(JsonlSource, tmp_path) == ""
    assert refusal(JsonlSource, tmp_path, text_key="body") == (
        "data.sources.2: the first records of this source are no documents (seen a.jsonl:1: no key 'body'); "
        "check the keys and the files of data.sources.2"
    )
    (tmp_path / "a.jsonl").write_text('[{"text": "a list"}, {"text": "in one line"}]')
    assert "a.jsonl:1: not a JSON object" in refusal(JsonlSource, tmp_path)


def test_one_document_in_the_first_files_is_enough(tmp_path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(FILES - 1):
        (folder / f"{number}.jsonl").write_text('{"body": "no text"}\n')
    assert "no key 'text'" in refusal(JsonlSource, folder)
    write(folder / "last.jsonl", ("a document", None))
    assert refusal(JsonlSource, folder) == ""


def test_a_document_behind_the_heads_is_enough(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "no text"}\n' * 60_000 + '{"text": "a document"}\n')
    assert path.stat().st_size > HEAD_BYTES
    assert refusal(JsonlSource, path) == ""
    monkeypatch.setattr(head, "PATIENCE_BYTES", HEAD_BYTES)
    assert "no key 'text'" in refusal(JsonlSource, path)


def test_the_answer_does_not_depend_on_the_order_of_a_folder(tmp_path, monkeypatch) -> None:
    for number in range(4 * FILES):
        (tmp_path / f"{number:03}.jsonl").write_text('{"body": "no text"}\n')
    write(tmp_path / "100.jsonl", ("a document", None))
    listed, answers = head.source_entries, set()
    for order in (list, lambda entries: list(entries)[::-1]):
        monkeypatch.setattr(head, "source_entries", lambda *asked, order=order: order(listed(*asked)))
        answers.add(refusal(JsonlSource, tmp_path))
    assert len(answers) == 1


def test_a_damaged_file_beside_one_whose_head_tells_nothing_is_not_refused(tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number in range(10):
        (tmp_path / f"{number}.parquet").write_bytes(b"PAR1 and no more")
    assert "damaged Parquet" in refusal(ParquetSource, tmp_path)
    parquet.write_table(arrow.table({"text": ["one"]}), tmp_path / "x.parquet")
    assert refusal(ParquetSource, tmp_path) == ""


def test_a_head_that_tells_nothing_is_not_refused(tmp_path) -> None:
    for name, content in {"empty": b"", "blank": b"\n\n", "long": b"x" * (HEAD_BYTES + 1)}.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(content)
        assert refusal(JsonlSource, path) == ""
    assert refusal(JsonlSource, "https://example.org/a.jsonl") == ""


def test_damaged_files_alone_are_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(b"no frame of Zstandard")
    assert "(seen a.jsonl.zst: damaged zstd)" in refusal(JsonlSource, tmp_path)
    write(tmp_path / "b.jsonl", ("a document", None))
    assert refusal(JsonlSource, tmp_path) == "", "the damaged one is counted and passed over"
    assert refusal(ParquetSource, tmp_path / "b.jsonl").endswith(
        "are no documents (seen b.jsonl: damaged Parquet); check the keys and the files of data.sources.2"
    )


def test_a_column_is_looked_for_in_the_schema(tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"body": ["one"], "id": [1]}), path)
    assert refusal(ParquetSource, path, text_column="body") == ""
    assert refusal(ParquetSource, path) == (
        f"data.sources.2: this Parquet file has no column 'text' (seen {path}: body, id); set text_column"
    )
    assert "holds no text" in refusal(ParquetSource, path, text_column="id")


def test_a_column_of_nulls_alone_is_refused_and_one_with_a_text_is_not(tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": arrow.array([None, None], arrow.string())}), path)
    assert "(seen a.parquet, 2 of 2 rows: null text)" in refusal(ParquetSource, path)
    parquet.write_table(arrow.table({"text": [None, "a document"]}), path)
    assert refusal(ParquetSource, path) == ""


def test_columns_of_text_in_any_form_are_text_and_two_of_one_name_are_refused(tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    texts = arrow.array(["one", "two", "one"])
    for column in (texts, texts.dictionary_encode(), texts.cast(arrow.large_string()), texts.cast(arrow.string_view())):
        parquet.write_table(arrow.table({"text": column}), path)
        assert refusal(ParquetSource, path) == "", column.type
        assert [each.text for each in read(path)] == ["one", "two", "one"], column.type
    parquet.write_table(arrow.Table.from_arrays([texts, texts], names=["text", "text"]), path)
    assert "several columns are called 'text' (seen " in refusal(ParquetSource, path)


def read(path: Path) -> list[RawDocument]:
    """The documents of a Parquet file."""
    file = CorpusFile(source=0, name=path.name, location=str(path), size_bytes=1, version="")
    section = ParquetSource.model_validate({"kind": "parquet", "paths": [str(path)]})
    with path.open("rb") as stream:
        return list(source_of(section).read(stream, FileRange(file=file)))
