from __future__ import annotations

from fixtures.page import WrittenPage
from trainwright.render.results.dataset import funnel_rows, show


def test_every_drop_is_a_row_between_read_and_kept():
    tally = {"documents": 1, "bytes": 1024}
    source = {
        "read": tally,
        "broken": {"not UTF-8": tally},
        "dropped": {"empty": tally},
        "duplicates": tally,
        "kept": tally,
        "examples": {"empty": ["one", "two", "three"]},
    }
    rows = funnel_rows(source)
    assert [row[0] for row in rows] == ["read", "- broken: not UTF-8", "- empty", "- duplicate", "kept"]
    assert rows[2] == ("- empty", "1", "1 KiB", "one, two")


def test_a_smaller_vocabulary_than_asked_for_says_why():
    report = {
        "sources": [],
        "splits": {"train": {"documents": 2, "bytes": 2048, "tokens": 512, "bytes_per_token": 4.0}},
        "tokenizer": {"kind": "bpe", "vocabulary": 300, "asked_vocabulary": 4096},
    }
    execution = {"encoding": {"engine": "gigatoken"}, "encode_bytes_per_s": 5e6, "seconds": 2.0}
    page = WrittenPage()
    show(report, execution, page)
    assert page.tables["split"] == [("train", "2", "2 KiB", "512", 4.0)]
    assert page.lines[-1] == (
        "tokenizer: bpe, vocabulary 300 of 4,096 asked for (the corpus is too small); "
        "encoded by gigatoken at 5 MB/s; all took 2 s"
    )
