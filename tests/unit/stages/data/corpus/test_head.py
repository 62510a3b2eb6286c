"""Labels that a small read finds are labels that the dataset will have; where that is not sure there are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import DataError
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.head import HEAD_BYTES, labels_at_head


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
    assert labels_at_head(section(packed)) == ()
    assert labels_at_head(section("https://example.org/a.jsonl")) == ()
    assert labels_at_head(section(path, kind="files")) == ()
    assert labels_at_head(section(path, clean={"filters": ["textwrap:dedent"]})) == ()
    with pytest.raises(DataError, match="no such file"):
        labels_at_head(section(tmp_path / "gone.jsonl"))
