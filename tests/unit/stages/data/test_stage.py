from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError, MachineError
from trainwright.stages.data import stage
from trainwright.stages.data.tokens.tokenizer import tokenizer_json

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}


def jsonl(folder):
    return {"kind": "jsonl", "paths": [str(folder)]}


def texts_of(out, split):
    """The documents of a split, decoded by the reference library."""
    dataset = TokenDataset.open(out)
    tokens = dataset.splits[split]
    tokenizer = tokenizers.Tokenizer.from_file(str(dataset.tokenizer_path))
    ends = [0, *tokens.document_ends.tolist()]
    found = []
    for start, stop in itertools.pairwise(ends):
        ids = tokens.read(start, stop).tolist()
        assert ids[-1] == dataset.end_of_text_id
        found.append(tokenizer.decode(ids[:-1], skip_special_tokens=False))
    return found


def source_texts(corpus):
    return [json.loads(line)["text"] for path in sorted(corpus.iterdir()) for line in path.read_text().splitlines()]


# ------------------------------------------------------------------------------------------------------- the result
def test_every_document_is_in_exactly_one_split_byte_for_byte(prepare, section, corpus):
    done = prepare(section(jsonl(corpus), split=SHARES))
    found = [text for split in SHARES for text in texts_of(done.out, split)]
    expected = {text.replace("\r\n", "\n") for text in source_texts(corpus)}
    assert sorted(found) == sorted(expected)
    dataset = TokenDataset.open(done.out)
    assert sum(split.text_bytes for split in dataset.splits.values()) == sum(len(text.encode()) for text in expected)
    assert done.result.summary["documents"] == len(expected)
    assert done.result.summary["tokens"] == {name: split.tokens for name, split in dataset.splits.items()}


def test_all_kinds_of_sources_give_the_same_documents(prepare, section, tmp_path):
    texts = [f"document number {n}: é\n" for n in range(20)]
    (tmp_path / "t.txt").write_text("##".join(texts))
    (tmp_path / "j.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps({"body": t}) + "\n" for t in texts).encode())
    )
    pq.write_table(pa.table({"text": texts}), tmp_path / "p.parquet")
    (tmp_path / "files").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "files" / f"{number}.txt").write_text(text)
    sources = [
        {"kind": "text", "paths": [str(tmp_path / "t.txt")], "separator": "##"},
        {"kind": "jsonl", "paths": [str(tmp_path / "j.jsonl.gz")], "text_key": "body"},
        {"kind": "parquet", "paths": [str(tmp_path / "p.parquet")]},
        {"kind": "files", "paths": [str(tmp_path / "files")]},
    ]
    results = [prepare(section(source), tmp_path / f"out{number}") for number, source in enumerate(sources)]
    for done in results:
        assert sorted(texts_of(done.out, "train")) == sorted(texts)
        for name in ("dataset.json", "tokenizer.json", "train-00000.tokens", "train-00000.index"):
            assert done.files[name] == results[0].files[name]
    together = prepare(section(*sources), tmp_path / "together")
    report = json.loads((together.out / "report.json").read_text())
    assert [source["duplicates"]["documents"] for source in report["sources"]] == [0, 20, 20, 20]
    assert together.files["train-00000.tokens"] == results[0].files["train-00000.tokens"]


VARIANTS = [
    {"workers": 2},
    {"workers": 1, "part_documents": 7},
    {"workers": 2, "part_documents": 50, "part_bytes": 20_000},
    {"workers": 1, "part_bytes": 7000},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_workers_and_part_sizes_never_change_a_byte(prepare, section, corpus, tmp_path, variant):
    (corpus / "broken.jsonl").write_text('{"text": "fine"}\n{\n{"text": ""}\n' * 9)
    once = prepare(section(jsonl(corpus), split=SHARES), tmp_path / "once")
    other = prepare(section(jsonl(corpus), split=SHARES, exec=variant), tmp_path / "other")
    assert other.files == once.files
    assert set(once.files) >= {
        "dataset.json",
        "tokenizer.json",
        "report.json",
        "train-00000.tokens",
        "test-00000.index",
    }


def test_the_vocabulary_and_the_engine_do_not_depend_on_each_other(prepare, section, corpus, tmp_path, monkeypatch):
    fast = prepare(section(jsonl(corpus)), tmp_path / "fast")
    assert fast.result.execution["encoding"]["engine"] == "gigatoken"
    # None in sys.modules hides a package; sitecustomize hides it in the processes that are started, too.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['gigatoken'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    slow = prepare(section(jsonl(corpus)), tmp_path / "slow")
    assert slow.result.execution["encoding"]["engine"] == "tokenizers"
    assert slow.files == fast.files
    assert "tokenizing with tokenizers, which is slower: gigatoken is not installed" in slow.messages


def test_the_tokenizer_sample_is_the_same_whatever_the_buckets(prepare, section, corpus, tmp_path):
    rules = {"vocabulary": 300, "sample_bytes": 5000}
    one = prepare(section(jsonl(corpus), tokenizer=rules), tmp_path / "one")
    many = prepare(
        section(jsonl(corpus), tokenizer=rules, exec={"workers": 1, "part_bytes": 10_000}), tmp_path / "many"
    )
    assert one.files == many.files
    assert one.files["tokenizer.json"] != prepare(section(jsonl(corpus)), tmp_path / "all").files["tokenizer.json"]


def test_a_brought_tokenizer_is_taken_as_it_is(prepare, section, corpus, tmp_path):
    text = tokenizer_json([(b"a", b"b")], end_of_text="</s>")
    (tmp_path / "mine.json").write_text(text, encoding="utf-8")
    rules = {"kind": "pretrained", "path": str(tmp_path / "mine.json"), "end_of_text": "</s>"}
    done = prepare(section(jsonl(corpus), tokenizer=rules))
    assert (done.out / "tokenizer.json").read_text(encoding="utf-8") == text
    assert done.result.summary["vocabulary"] == 258
    assert texts_of(done.out, "train")


def test_a_small_corpus_says_that_its_vocabulary_is_smaller(prepare, section, tmp_path):
    (tmp_path / "a.txt").write_text("hello hello\n")
    done = prepare(section({"kind": "files", "paths": [str(tmp_path / "a.txt")]}, tokenizer={"vocabulary": 5000}))
    (message,) = [text for text in done.messages if "too small for" in text]
    assert message == f"the corpus is too small for a vocabulary of 5,000: it has {done.result.summary['vocabulary']}"
    assert TokenDataset.open(done.out).vocabulary == done.result.summary["vocabulary"]


# ---------------------------------------------------------------------------------------------------------- bad input
def test_broken_records_are_counted_told_and_survived(prepare, section, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good one"}\n{\n{"x": 1}\n{"text": 3}\n\xff\n{"text": "good two"}\n')
    done = prepare(section(jsonl(tmp_path / "a.jsonl")))
    report = json.loads((done.out / "report.json").read_text())
    assert {reason: tally["documents"] for reason, tally in report["sources"][0]["broken"].items()} == {
        "'text' is not a string": 1,
        "broken JSON": 1,
        "no key 'text'": 1,
        "not UTF-8": 1,
    }
    assert "skipped 1 broken record: broken JSON (a.jsonl:2)" in done.messages
    assert sorted(texts_of(done.out, "train")) == ["good one", "good two"]


def test_truncated_archives_are_counted(prepare, section, tmp_path):
    import zstandard

    data = "".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(2000)).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data)[:-2000])
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data)[:-500])
    report = json.loads((prepare(section(jsonl(tmp_path))).out / "report.json").read_text())
    broken = report["sources"][0]["broken"]
    assert {reason: tally["documents"] for reason, tally in broken.items()} == {
        "truncated gzip": 1,
        "truncated zstd": 1,
    }
    with pytest.raises(DataError, match=r"a.jsonl.gz: broken record: truncated gzip"):
        prepare(section(jsonl(tmp_path), strict=True), tmp_path / "strict")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_corpus_of_which_nothing_is_left_is_one_line(prepare, section, tmp_path, workers):
    (tmp_path / "a.txt").write_text("short")
    given = section(
        {"kind": "files", "paths": [str(tmp_path / "a.txt")]}, clean={"min_characters": 100}, exec={"workers": workers}
    )
    with pytest.raises(DataError, match=r"no document is left of this corpus \(seen 1 record, most of them: under 100"):
        prepare(given)


def test_a_corpus_whose_records_have_no_text_names_the_source(prepare, section, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": 5}\n')
    given = section({"kind": "jsonl", "paths": [str(tmp_path / "a.jsonl")]})
    with pytest.raises(DataError) as caught:
        prepare(given)
    assert str(caught.value) == (
        "data.sources.0: no document is left of this corpus (seen 1 record, most of them: 'text' is not a string); "
        "mend its files, or check its keys"
    )


def test_an_empty_split_is_one_line(prepare, section, tmp_path):
    (tmp_path / "a.txt").write_text("only one document")
    given = section({"kind": "files", "paths": [str(tmp_path / "a.txt")]}, split=SHARES)
    with pytest.raises(DataError, match=r"split is empty \(seen 1 document, 0\.\d+ of them for it\)"):
        prepare(given)


def test_a_user_error_in_a_worker_is_the_same_line(prepare, section, corpus):
    (corpus / "bad.jsonl").write_text("{\n")
    with pytest.raises(DataError, match=r"bad.jsonl:1: broken record: broken JSON"):
        prepare(section(jsonl(corpus), strict=True, exec={"workers": 2}))


def test_files_that_hold_no_bytes_are_counted_and_told(prepare, section, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("good text")
    os.mkfifo(folder / "pipe")
    (folder / "gone").symlink_to("nowhere")
    done = prepare(section({"kind": "files", "paths": [str(folder)]}))
    record = json.loads((done.out / "report.json").read_text())["sources"][0]
    assert record["read"]["documents"] == 3
    assert record["broken"] == {name: {"documents": 1, "bytes": 0} for name in ("dangling link", "named pipe")}
    assert record["examples"] == {"dangling link": ["gone"], "named pipe": ["pipe"]}
    assert done.messages[:2] == ["skipped 1 file: dangling link (gone)", "skipped 1 file: named pipe (pipe)"]
    assert not any("broken records" in message for message in done.messages)
    with pytest.raises(DataError, match=r"gone: cannot read this file: dangling link; .*data.strict: false"):
        prepare(section({"kind": "files", "paths": [str(folder)]}, strict=True), tmp_path / "strict")


# -------------------------------------------------------------------------------------------------- interrupted runs
def test_parts_of_another_layout_are_not_taken_up(prepare, section, corpus, tmp_path):
    once = prepare(section(jsonl(corpus)), tmp_path / "once")
    out = tmp_path / "other"
    prepare(section(jsonl(corpus), clean={"min_characters": 200}), out)
    assert prepare(section(jsonl(corpus)), out).files == once.files


def test_a_kill_while_the_parts_are_deleted_is_survived(prepare, section, corpus, tmp_path):
    once = prepare(section(jsonl(corpus)), tmp_path / "once")
    for path in (tmp_path / "once" / ".parts").glob("bucket-*.docs"):
        path.unlink()
    assert prepare(section(jsonl(corpus)), tmp_path / "once").files == once.files


def test_a_full_disk_keeps_what_was_done(prepare, section, corpus, tmp_path, monkeypatch):
    given = section(jsonl(corpus), split=SHARES, exec={"workers": 1, "part_documents": 40, "part_bytes": 20_000})
    once = prepare(given, tmp_path / "once")
    real, out = os.fsync, tmp_path / "other"
    calls = 0

    def sometimes_full(handle):
        nonlocal calls
        calls += 1
        if calls % 17 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", sometimes_full)
    failures, done = [], None
    while done is None and len(failures) < 200:
        try:
            done = prepare(given, out)
        except MachineError as error:
            failures.append(str(error))
    line = "the disk is full; free some space and run the same command: finished parts are kept"
    assert len(failures) > 2
    assert all(failure.endswith(line) for failure in failures)
    assert done.files == once.files


@contextmanager
def small_disk(path, megabytes):
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_disk_that_really_is_full(prepare, section, tmp_path):
    (tmp_path / "big.txt").write_text("some words of text\n" * 150_000)
    with small_disk(tmp_path / "disk", 2) as disk, pytest.raises(MachineError, match="the disk is full"):
        prepare(section({"kind": "files", "paths": [str(tmp_path / "big.txt")]}), disk / "out")


SCRIPT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data import run
if __name__ == "__main__":
    print("started", flush=True)
    recipe = SimpleNamespace(data=DataSection.model_validate_json(sys.argv[1]))
    out = Path(sys.argv[2])
    run(Context(recipe=recipe, out=out, root=out.parent, events=Events(None, run="t")))
"""


def run_script(section, out):
    """Starts the stage in a process; an interpreter that is interrupted before it runs the script ends otherwise."""
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", SCRIPT, section.model_dump_json(), str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    assert process.stdout.readline() == "started\n"
    return process


MOMENTS = [("read-*.part", 3), ("read-*.part", 9), ("bucket-*.json", 3), ("tokenizer.json", 1), ("ids-*.json", 2)]
"""Kill when so many of these files are there: in the middle of every phase."""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_every_phase_and_run_again_gives_the_same_bytes(prepare, section, corpus, tmp_path, workers, how):
    rules = {"workers": workers, "part_documents": 20, "part_bytes": 9000}
    given = section(jsonl(corpus), split=SHARES, exec=rules)
    once = prepare(given, tmp_path / "once")
    out, moments, codes = tmp_path / "killed", random.Random(workers), []
    for pattern, count in MOMENTS:
        process = run_script(given, out)
        while len(list((out / ".parts").glob(pattern))) < count and process.poll() is None:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.02))
        process.send_signal(how)
        process.communicate(timeout=60)
        codes.append(process.returncode)
    assert set(codes) <= {-how, 0}
    assert -how in codes
    process = run_script(given, out)
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
    found = {path.name: path.read_bytes() for path in out.iterdir() if not path.name.startswith(".")}
    assert found == {name: (tmp_path / "once" / name).read_bytes() for name in once.files}


def test_the_stage_is_found_by_its_name_and_nothing_else_is():
    from trainwright.core.registry import load
    from trainwright.stages import data

    assert load("trainwright.stages.data:run", kind="stage") is stage.run
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        data.runn  # noqa: B018


def test_the_standard_library_goes_through(prepare, section, tmp_path):
    """Real input: the json package of this Python, read as a directory of files, encodings and all."""
    folder = Path(json.__file__).parent
    done = prepare(
        section({"kind": "files", "paths": [str(folder)], "include": ["*.py"]}, tokenizer={"vocabulary": 600})
    )
    expected = {path.read_text(encoding="utf-8") for path in folder.glob("*.py")} - {""}
    assert sorted(texts_of(done.out, "train")) == sorted(expected)
