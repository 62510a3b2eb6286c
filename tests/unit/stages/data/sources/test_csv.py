"""Tables as text, against rows written by Python's own writer and by hand."""

from __future__ import annotations

import codecs
import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import DataError
from trainwright.spec.sections.corpus.sources import CsvSource
from trainwright.testing.contract_source import SourceContract

TEXTS = CsvSource(kind="csv", paths=("x",))
TICKETS = CsvSource(kind="csv", paths=("x",), text_column="body", label_column="queue")


def table(rows: list[list[str]], **dialect: str) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue().encode()


def test_every_kind_of_broken_row_is_named_by_its_line_and_the_rest_is_read(tmp_path, read, written):
    lines = [
        b"queue,body",
        b'billing,"two\nlines"',
        b"billing",
        b"",
        b"sales,caf\xe9",
        b" ,text",
        b'sales,"a ""b"", c"',
    ]
    found = read(written(tmp_path / "a.csv", codecs.BOM_UTF8 + b"\n".join(lines)), TICKETS)
    assert [(each.position, each.problem, each.label, each.text) for each in found] == [
        (":2", None, "billing", "two\nlines"),
        (":4", "another number of fields than the first row", None, None),
        (":6", "not UTF-8", None, None),
        (":7", "'queue' is empty", None, None),
        (":8", None, "sales", 'a "b", c'),
    ]


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=12), tabs=st.booleans())
def test_what_was_written_is_read(tmp_path_factory, texts, tabs, read, written):
    name, delimiter = ("a.tsv", "\t") if tabs else ("a.csv", ",")
    data = table([["number", "text"], *([str(n), text] for n, text in enumerate(texts))], delimiter=delimiter)
    found = read(written(tmp_path_factory.mktemp("tables") / name, data), TEXTS)
    assert [each.text for each in found] == texts


def test_a_long_text_is_read_whole(tmp_path, read, written):
    long = "word " * 100_000
    assert [each.text for each in read(written(tmp_path / "a.csv", table([["text"], [long]])), TEXTS)] == [long]


@pytest.mark.parametrize(
    ("columns", "section", "told"),
    [
        (["title", "body"], TEXTS, "this table has no column 'text' .*title, body.*set text_column, or the delimiter"),
        (["body;queue"], TICKETS, "no column 'body' .*body;queue"),
        (["body", "kind"], TICKETS, "no column 'queue' .*set label_column"),
        (["text", "text"], TEXTS, "several columns are called 'text'"),
    ],
)
def test_columns_that_are_not_there_are_refused_in_one_line(tmp_path, read, written, columns, section, told):
    with pytest.raises(DataError, match=told) as caught:
        read(written(tmp_path / "a.csv", table([columns, ["a"] * len(columns)])), section)
    assert len(str(caught.value).splitlines()) == 1


def test_another_delimiter_is_said(tmp_path, read, written):
    data = table([["body", "queue"], ["a, b", "x"]], delimiter=";")
    found = read(written(tmp_path / "a.csv", data), TICKETS.model_copy(update={"delimiter": ";"}))
    assert [(each.text, each.label) for each in found] == [("a, b", "x")]


class TestCsv(SourceContract):
    def keys(self):
        return {"kind": "csv", "text_column": "body", "label_column": "queue"}

    def write(self, folder):
        (folder / "a.csv").write_bytes(table([["queue", "body"], ["x", "one"], ["y", "tw\nö"], ["only one field"]]))
        (folder / "b.tsv").write_bytes(table([["body", "queue"], ["three", "x"]], delimiter="\t"))
        (folder / "c.txt").write_text("no table")
        return ["one", "tw\nö", "three"]
