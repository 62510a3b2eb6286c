from __future__ import annotations

import gzip
import json

import pytest

from trainwright.spec.sections.corpus.words import ConllSource, WordsSource
from trainwright.stages.data.corpus.entries import FileRange
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.words.records import words_of


def told(documents):
    return [
        (d.position, d.problem) if d.text is None else (d.position, words_of(d.text), words_of(d.label))
        for d in documents
    ]


CONLL = (
    "\ufeff-DOCSTART- -X- O O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\n-DOCSTART- -X- O\nGerman JJ B-MISC\n\n"
    "lonely\n\na x O\nb O\n"
)


def test_words_of_columns_stand_between_blank_lines(read, written, tmp_path) -> None:
    section = ConllSource(kind="conll", paths=("x",))
    expected = [
        (":3", ["EU", "rejects"], ["B-ORG", "O"]),
        (":7", ["German"], ["B-MISC"]),
        (":10", "a line has too few columns"),
        (":12", ["a", "b"], ["O", "O"]),
    ]
    assert told(read(written(tmp_path / "a.conll", CONLL.encode()), section)) == expected
    windows = written(tmp_path / "b.conll", CONLL.replace("\n", "\r\n").encode())
    assert told(read(windows, section)) == expected
    assert told(read(written(tmp_path / "c.conll.gz", gzip.compress(CONLL.encode())), section)) == expected


def test_columns_are_chosen_and_tabs_let_words_hold_spaces(read, written, tmp_path) -> None:
    section = ConllSource(kind="conll", paths=("x",), word_column=1, tag_column=2)
    lines = b"1\tNew York\tB-LOC\t_\n2\tslept\tO\t_\n\n1\t\xff\tO\n\n1\t \tO\n\n1 a\n"
    assert told(read(written(tmp_path / "a.conll", lines), section)) == [
        (":1", ["New York", "slept"], ["B-LOC", "O"]),
        (":4", "not UTF-8"),
        (":6", "an empty word"),
        (":8", "a line has too few columns"),
    ]


def test_only_spaces_part_columns(read, written, tmp_path) -> None:
    section = ConllSource(kind="conll", paths=("x",))
    lines = "10\u00a0000 O\nkm  O \n\n\u00a0\n\u3000\nc O\n \t\n\nd O\n"
    assert told(read(written(tmp_path / "a.conll", lines.encode()), section)) == [
        (":1", ["10\u00a0000", "km"], ["O", "O"]),
        (":4", "a line has too few columns"),
        (":9", ["d"], ["O"]),
    ]


def test_the_head_of_columns_has_whole_sentences(written, tmp_path, as_file, monkeypatch) -> None:
    monkeypatch.setattr("trainwright.stages.data.sources.words.HEAD_BYTES", 40)
    path = written(tmp_path / "a.conll", b"aa O\nbb O\n\ncc O\ndd O\n\n" + b"ee O\nff O\n" * 9)
    with path.open("rb") as stream:
        found = source_of(ConllSource(kind="conll", paths=("x",))).head(stream, FileRange(file=as_file(path)))
        assert [words for _, words, _ in told(found)] == [["aa", "bb"], ["cc", "dd"]]


def test_lists_of_lines_and_of_parquet(read, written, tmp_path) -> None:
    rows = [{"tokens": ["a", "b"], "ner_tags": [1, 0]}, {"tokens": ["a"], "ner_tags": []}, {"tokens": ["a"]}]
    section = WordsSource(kind="words", paths=("x",), words_key="tokens", labels_key="ner_tags")
    lines = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    expected = [["a", "b"], ["1", "0"]], "another number of labels than of words", "no key 'ner_tags'"
    for found in (told(read(lines, section)),):
        assert [found[0][1:], found[1][1], found[2][1]] == [tuple(expected[0]), *expected[1:]]
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows[:2]), tmp_path / "a.parquet")
    found = told(read(tmp_path / "a.parquet", section))
    assert [found[0][1:], found[1][1]] == [tuple(expected[0]), expected[1]]
