from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.core.errors import DataError
from trainwright.stages.data.corpus import digests as module
from trainwright.stages.data.corpus.digests import block_bytes, corpus_digest, read_corpus


def test_the_digest_is_of_names_and_contents_wherever_they_are(tree, tmp_path, section):
    here = corpus_digest(section({"kind": "files", "paths": [str(tree)]}), cache=None)
    shutil.copytree(tree, tmp_path / "elsewhere")
    there = section({"kind": "files", "paths": [str(tmp_path / "elsewhere")]})
    assert corpus_digest(there, cache=None) == here
    (tmp_path / "elsewhere" / "a.md").write_text("a.mD")
    changed = corpus_digest(there, cache=None)
    assert changed != here
    (tmp_path / "elsewhere" / "a.md").rename(tmp_path / "elsewhere" / "z.md")
    assert corpus_digest(there, cache=None) not in (here, changed)


def test_a_pretrained_tokenizer_is_part_of_the_digest(tree, tmp_path, section):
    source = {"kind": "files", "paths": [str(tree)]}
    path = tmp_path / "tokenizer.json"
    given = section(source, tokenizer={"kind": "pretrained", "path": str(path)})
    with pytest.raises(DataError, match=r"no tokenizer here .*; check data.tokenizer.path"):
        corpus_digest(given, cache=None)
    path.write_text("{}")
    one = corpus_digest(given, cache=None)
    path.write_text("{ }")
    assert corpus_digest(given, cache=None) != one


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files that were hashed, as it happens."""
    names, real = [], module.open_regular
    monkeypatch.setattr(module, "open_regular", lambda path: names.append(path.rpartition("/")[2]) or real(path))
    return names


@pytest.fixture
def later(monkeypatch):
    """Lets the clock stand ten seconds ahead: the files of a test are old enough to be remembered."""
    monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 10**10))


def test_the_cache_spares_reading_what_did_not_change(tree, tmp_path, section, hashed, later):
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "cache" / "digests.json"
    first = corpus_digest(source, cache=cache)
    assert len(hashed) == 4
    assert corpus_digest(source, cache=cache) == first
    assert len(hashed) == 4
    (tree / "b.txt").write_text("other text")
    assert corpus_digest(source, cache=cache) != first
    assert hashed[4:] == ["b.txt"]
    assert corpus_digest(source, cache=None) == corpus_digest(source, cache=cache)


def test_a_file_whose_name_is_not_utf8_is_hashed_and_remembered(tree, tmp_path, section, hashed, later):
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    ordinary = corpus_digest(source, cache=cache)
    path = Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9.txt"))
    path.write_text("alpha beta")
    with_it = corpus_digest(source, cache=cache)
    assert with_it != ordinary
    assert corpus_digest(source, cache=cache) == with_it
    assert hashed.count(path.name) == 1
    path.write_text("beta alpha")
    corpus = read_corpus(source, cache=cache)
    assert (corpus.changed, corpus.digest() != with_it) == ((str(path),), True)
    path.unlink()
    assert corpus_digest(source, cache=cache) == ordinary


def test_a_change_that_keeps_size_and_mtime_is_seen(tree, tmp_path, section, later):
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    before, facts = corpus_digest(source, cache=cache), (tree / "b.txt").stat()
    (tree / "b.txt").write_text("B.TXT")
    os.utime(tree / "b.txt", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    now = (tree / "b.txt").stat()
    assert (now.st_size, now.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)
    assert corpus_digest(source, cache=cache) != before


def test_a_young_file_is_never_remembered(tree, tmp_path, section, hashed):
    """A second write within the tick of the file system's clock would leave no trace."""
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    corpus_digest(source, cache=cache)
    corpus_digest(source, cache=cache)
    assert len(hashed) == 8


def test_what_changed_since_the_last_look_is_named(tree, tmp_path, section):
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    assert read_corpus(source, cache=cache).changed == ()
    (tree / "b.txt").write_text("other text")
    assert read_corpus(source, cache=cache).changed == (str(tree / "b.txt"),)


def test_looking_for_the_dataset_of_files_that_were_young_writes_nothing(tree, tmp_path, section, monkeypatch):
    source, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    for path in tree.rglob("*"):
        path.touch()
    here = corpus_digest(source, cache=cache)
    read_corpus(source, cache=cache)
    young, stamp = cache.read_bytes(), cache.stat().st_mtime_ns
    monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 10**10))
    assert corpus_digest(source, cache=cache) == here
    assert (cache.read_bytes(), cache.stat().st_mtime_ns) == (young, stamp)
    read_corpus(source, cache=cache)
    assert cache.read_bytes() != young


def test_a_workspace_that_cannot_be_written_to_has_no_cache(tree, tmp_path, section):
    (tmp_path / "file").touch()
    source = section({"kind": "files", "paths": [str(tree)]})
    assert corpus_digest(source, cache=tmp_path / "file" / "digests.json") == corpus_digest(source, cache=None)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25])
def test_blocks_are_the_digests_of_their_bytes(tmp_path, as_file, monkeypatch, size):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 3)
    data = bytes(range(size))
    (tmp_path / "a").write_bytes(data)
    pieces = [data[at : at + 10] for at in range(0, size, 10)]
    assert as_file(tmp_path / "a").blocks == b"".join(hashlib.sha256(piece).digest() for piece in pieces)


def test_no_file_has_more_than_16384_blocks():
    assert block_bytes(0) == block_bytes(1 << 36) == 4 << 20
    assert block_bytes((1 << 36) + 1) == 8 << 20
    assert -(-(5 << 40) // block_bytes(5 << 40)) <= 1 << 14


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_cache_is_made_again(tree, tmp_path, section, damage):
    given, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    cache.write_bytes(damage)
    assert corpus_digest(given, cache=cache) == corpus_digest(given, cache=None)
    assert corpus_digest(given, cache=cache) == corpus_digest(given, cache=None)


def test_a_cache_with_one_wrong_digit_is_made_again(tree, tmp_path, section, later):
    given, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    truth = corpus_digest(given, cache=cache)
    record = json.loads(cache.read_bytes())
    for entry in record["files"].values():
        entry[2] = ("1" if entry[2][0] == "0" else "0") + entry[2][1:]
    cache.write_text(json.dumps(record))
    assert corpus_digest(given, cache=cache) == truth


def refuse(monkeypatch, number, name="b.txt"):
    real = module.open_regular

    def open_regular(path):
        if path.endswith(name):
            raise OSError(number, os.strerror(number), path)
        return real(path)

    monkeypatch.setattr(module, "open_regular", open_regular)


@pytest.mark.parametrize(("number", "reason"), [(errno.EACCES, "permission denied"), (errno.EIO, "input/output error")])
def test_an_unreadable_file_is_skipped_and_the_digest_tells(tree, section, monkeypatch, number, reason):
    source = section({"kind": "files", "paths": [str(tree)]})
    readable = corpus_digest(source, cache=None)
    refuse(monkeypatch, number)
    corpus = read_corpus(source, cache=None)
    assert [(file.name, file.reason) for file in corpus.skipped] == [("b.txt", reason)]
    assert len(corpus.files) == 3
    without = corpus_digest(source, cache=None)
    assert without != readable
    (tree / "b.txt").unlink()
    assert corpus_digest(source, cache=None) not in (readable, without)


def test_strict_refuses_what_would_be_skipped(tree, section, monkeypatch):
    refuse(monkeypatch, errno.EACCES)
    with pytest.raises(DataError, match=r"b.txt: cannot read this file: permission denied; mend or remove it, or set"):
        read_corpus(section({"kind": "files", "paths": [str(tree)]}, strict=True), cache=None)


def test_trouble_of_the_machine_is_not_the_file_s(tree, section, monkeypatch):
    refuse(monkeypatch, errno.EMFILE)
    with pytest.raises(DataError, match=r"b.txt: cannot read this file \(seen Too many open files\)"):
        read_corpus(section({"kind": "files", "paths": [str(tree)]}), cache=None)


def test_a_file_that_becomes_a_named_pipe_is_skipped(tmp_path, as_file):
    os.mkfifo(tmp_path / "pipe")
    assert as_file(tmp_path / "pipe").reason == "named pipe"


def test_a_corpus_without_bytes_is_one_line(tmp_path, section):
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "a.txt").touch()
    os.mkfifo(tmp_path / "n" / "pipe")
    with pytest.raises(DataError, match=r"the corpus is empty \(seen 1 file, 0 bytes, 1 skipped: named pipe"):
        read_corpus(section({"kind": "files", "paths": [str(tmp_path / "n")]}), cache=None)


HANGING = """
import sys, time
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus import digests

def never_answers(handle, size_bytes):
    print("reading", flush=True)
    while True:
        time.sleep(600)

digests._block_digests = never_answers
digests.corpus_digest(DataSection.model_validate_json(sys.argv[1]), cache=None)
"""


def test_a_full_memory_is_told_to_who_asked(tree, section, monkeypatch):
    def no_memory(handle, size_bytes):
        raise MemoryError("no room for a block")

    monkeypatch.setattr(module, "_block_digests", no_memory)
    with pytest.raises(MemoryError, match="no room for a block"):
        read_corpus(section({"kind": "files", "paths": [str(tree)]}), cache=None)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_read_that_never_returns_does_not_outlive_the_first_signal(tree, section, how):
    source = section({"kind": "files", "paths": [str(tree)]})
    code = f"import signal; signal.signal(signal.SIGTERM, signal.default_int_handler)\n{HANGING}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, source.model_dump_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "reading" in process.stdout.readline()
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    assert error.rstrip().endswith("KeyboardInterrupt")


def test_asking_for_the_digest_loads_nothing_heavy(tree):
    code = (
        "import sys; from trainwright.stages.data.corpus.digests import corpus_digest\n"
        "from trainwright.spec.sections.data import DataSection\n"
        f"s = DataSection.model_validate({{'sources': [{{'kind': 'files', 'paths': [{str(tree)!r}]}}]}})\n"
        "corpus_digest(s, cache=None)\n"
        "print([m for m in ('numpy', 'torch', 'pyarrow', 'fsspec', 'tokenizers', 'gigatoken') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
