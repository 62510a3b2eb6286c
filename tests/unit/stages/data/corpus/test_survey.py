"""A first look at data: against what was written into the files."""

from __future__ import annotations

import gzip
import json

import pytest

from fixtures.answers import write_answers
from trainwright.core.errors import DataError
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.survey import columns_of, survey


def section(**source):
    return DataSection.model_validate({"sources": [source]}).sources[0]


@pytest.fixture
def folder(tmp_path):
    write_answers(tmp_path)
    return tmp_path


def test_labels_and_lengths_are_those_of_the_table(folder) -> None:
    table = section(kind="csv", paths=[str(folder / "tickets.csv")], text_column="body", label_column="queue")
    seen = survey(table)
    assert (seen.documents, seen.labels, seen.whole) == (120, {"billing": 40, "sales": 40, "technical": 40}, True)
    texts = [f"the {word} of {n}, again" for n in range(120) for word in [("invoice", "offer", "server")[n % 3]]]
    assert seen.lengths == tuple(sorted(map(len, texts)))
    assert (seen.longest(0), seen.longest(1)) == (min(map(len, texts)), max(map(len, texts)))


def test_it_ends_where_it_may_not_read_further(folder) -> None:
    seen = survey(section(kind="jsonl", paths=[str(folder / "pairs.jsonl")], text_key="chosen"), most_bytes=200)
    assert not seen.whole and 1 < seen.documents < 10


def test_broken_records_are_named_and_left_out(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 2}\nnothing\n{"text": "déjà"}\n')
    seen = survey(section(kind="jsonl", paths=[str(tmp_path / "a.jsonl")]))
    assert (seen.documents, seen.lengths) == (2, (3, 6))
    assert seen.problem == "a.jsonl:2: 'text' is not a string"


def test_columns_of_every_kind_of_table(folder) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"body": ["x"], "n": [1]}), folder / "t.parquet")
    (folder / "t.tsv").write_text("\ufeffone\ttwo\n1\t2\n", encoding="utf-8")
    with gzip.open(folder / "t.jsonl.gz", "wt") as stream:
        stream.write("\n".join(json.dumps(each) for each in ({"b": 1}, [1], {"a": 1, "b": 2})))
    kinds = {"t.parquet": "parquet", "t.tsv": "csv", "t.jsonl.gz": "jsonl", "tickets.csv": "csv"}
    seen = {name: columns_of(section(kind=kind, paths=[str(folder / name)])) for name, kind in kinds.items()}
    assert seen == {
        "t.parquet": ("body", "n"),
        "t.tsv": ("one", "two"),
        "t.jsonl.gz": ("b", "a"),
        "tickets.csv": ("id", "body", "queue"),
    }


def test_nothing_is_asked_of_a_network_and_nothing_is_guessed_of_damage(tmp_path) -> None:
    remote = section(kind="jsonl", paths=["s3://bucket/a.jsonl"])
    assert columns_of(remote) == () and survey(remote).documents == 0 and not survey(remote).whole
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not")
    (tmp_path / "b.csv").write_bytes(b"")
    assert columns_of(section(kind="parquet", paths=[str(tmp_path / "a.parquet")])) == ()
    assert columns_of(section(kind="csv", paths=[str(tmp_path / "b.csv")])) == ()
    with pytest.raises(DataError):
        survey(section(kind="jsonl", paths=[str(tmp_path / "none*.jsonl")]))
