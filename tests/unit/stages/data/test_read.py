from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError
from trainwright.stages.data import read as module
from trainwright.stages.data.corpus.digests import read_corpus
from trainwright.stages.data.parts import read_footer, read_section
from trainwright.stages.data.read import ReadJob, finished_parts, plan_units, read_funnels, read_unit


def documents(directory, units):
    """Every document in the parts, in the corpus's order."""
    found = []
    for unit in units:
        for path, footer in zip(*finished_parts(directory, unit.number), strict=True):
            for span in footer["sections"].values():
                found += read_section(path, *span)
    return found


def read_all(section, directory):
    directory.mkdir(exist_ok=True)
    units = plan_units(read_corpus(section, cache=None).files, section)
    for unit in units:
        read_unit(ReadJob(unit=unit, section=section, bucket_bits=0, directory=directory))
    return units


def test_small_files_share_a_unit_and_sources_do_not(tmp_path, section, monkeypatch):
    for name in "abcdef":
        (tmp_path / f"{name}.txt").write_text("x" * 100)
    source = {"kind": "files", "paths": [str(tmp_path)], "include": ["*.txt"]}
    given = section(source, source)
    files = read_corpus(given, cache=None).files
    assert [(u.source, len(u.ranges)) for u in plan_units(files, given)] == [(0, 6), (1, 6)]
    monkeypatch.setattr(module, "_UNIT_BYTES", 250)
    units = plan_units(files, given)
    assert [(u.number, u.source, len(u.ranges)) for u in units] == [(0, 0, 3), (1, 0, 3), (2, 1, 3), (3, 1, 3)]
    assert [u.size_bytes for u in units] == [300] * 4


def test_large_plain_json_lines_are_cut_and_read_the_same(tmp_path, section, corpus, monkeypatch):
    given = section({"kind": "jsonl", "paths": [str(corpus)]})
    whole = documents(tmp_path / "whole", read_all(given, tmp_path / "whole"))
    monkeypatch.setattr(module, "_RANGE_BYTES", 3000)
    units = read_all(given, tmp_path / "cut")
    assert len(units) > 8
    cut = documents(tmp_path / "cut", units)
    assert [(item.digest, item.text) for item in cut] == [(item.digest, item.text) for item in whole]


def test_compressed_json_lines_are_not_cut(tmp_path, section, monkeypatch):
    import gzip

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 100))
    monkeypatch.setattr(module, "_RANGE_BYTES", 10)
    given = section({"kind": "jsonl", "paths": [str(tmp_path)]})
    assert [len(unit.ranges) for unit in plan_units(read_corpus(given, cache=None).files, given)] == [1]


@pytest.mark.parametrize("part_documents", [13, 10_000])
def test_parts_are_taken_up_where_they_end(tmp_path, section, corpus, part_documents):
    given = section({"kind": "jsonl", "paths": [str(corpus)]}, exec={"part_documents": part_documents})
    once = tmp_path / "once"
    units = read_all(given, once)
    paths, footers = finished_parts(once, units[0].number)
    assert [footer["last"] for footer in footers] == [False] * (len(footers) - 1) + [True]
    expected = documents(once, units), [funnel.to_json() for funnel in read_funnels(once, units, (), 1)]
    for path in paths[len(paths) // 2 :]:  # what a kill would have left out
        path.unlink()
    before = {path: path.stat().st_ino for path in paths[: len(paths) // 2]}
    read_all(given, once)
    assert {path: path.stat().st_ino for path in before} == before
    assert (documents(once, units), [funnel.to_json() for funnel in read_funnels(once, units, (), 1)]) == expected


def test_part_size_in_bytes_bounds_a_part(tmp_path, section, corpus):
    given = section({"kind": "jsonl", "paths": [str(corpus)]}, exec={"part_bytes": 2000})
    units = read_all(given, tmp_path / "parts")
    sizes = [
        sum(length for _, length in footer["sections"].values()) for footer in finished_parts(tmp_path / "parts", 0)[1]
    ]
    assert len(sizes) > 10
    longest = max(len(item.text) for item in documents(tmp_path / "parts", units))
    assert max(sizes) < 2000 + longest + 100 * 60


def test_the_funnel_accounts_for_every_record(tmp_path, section):
    lines = ['{"text": "good"}', "{", '{"text": ""}', '{"no": 1}', '{"text": "also good"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    given = section({"kind": "jsonl", "paths": [str(tmp_path / "a.jsonl")]})
    units = read_all(given, tmp_path / "parts")
    (funnel,) = read_funnels(tmp_path / "parts", units, (), 1)
    assert (funnel.read.documents, funnel.read.bytes) == (5, (tmp_path / "a.jsonl").stat().st_size)
    assert {reason: tally.documents for reason, tally in funnel.broken.items()} == {
        "broken JSON": 1,
        "no key 'text'": 1,
    }
    assert {reason: tally.documents for reason, tally in funnel.dropped.items()} == {"empty": 1}
    assert funnel.examples == {"broken JSON": ["a.jsonl:2"], "empty": ["a.jsonl:3"], "no key 'text'": ["a.jsonl:4"]}
    assert len(documents(tmp_path / "parts", units)) == 2


def test_strict_stops_at_the_first_broken_record_and_says_where(tmp_path, section):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x"}) + "\n{\n")
    given = section({"kind": "jsonl", "paths": [str(tmp_path / "a.jsonl")]}, strict=True)
    with pytest.raises(DataError, match=r"a.jsonl:2: broken record: broken JSON; mend it, or set data.strict: false"):
        read_all(given, tmp_path / "parts")
    (tmp_path / "a.txt").write_bytes(b"abc\xff")
    given = section({"kind": "files", "paths": [str(tmp_path / "a.txt")]}, strict=True)
    with pytest.raises(DataError, match=r"a.txt:byte 3: broken record: not UTF-8"):
        read_all(given, tmp_path / "parts")


def test_a_finished_unit_is_not_read_again(tmp_path, section):
    (tmp_path / "a.txt").write_text("text")
    given = section({"kind": "files", "paths": [str(tmp_path / "a.txt")]})
    (unit,) = read_all(given, tmp_path / "parts")
    (tmp_path / "a.txt").unlink()
    assert read_unit(ReadJob(unit=unit, section=given, bucket_bits=0, directory=tmp_path / "parts")) == 4
    assert read_footer(tmp_path / "parts" / "read-000000-00000.part")["last"]
