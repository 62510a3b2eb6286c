from __future__ import annotations

import sys

import pytest

from trainwright.core.errors import DataError, MachineError, MissingPackage
from trainwright.stages.data.corpus.digests import corpus_digest, read_corpus
from trainwright.stages.data.corpus.files import list_files
from trainwright.stages.data.corpus.streams import opened


@pytest.fixture
def remote():
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    for name in ("bucket/b.jsonl", "bucket/deep/a.jsonl", "bucket/readme.md"):
        with filesystem.open(f"/{name}", "wb") as stream:
            stream.write(name.encode())
    return filesystem


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://bucket", ["b.jsonl", "deep/a.jsonl"]),
        ("memory://bucket/*.jsonl", ["b.jsonl"]),
        ("memory://bucket/readme.md", ["readme.md"]),
    ],
)
def test_urls_are_listed_like_local_paths(remote, section, url, expected):
    given = section({"kind": "jsonl", "paths": [url]})
    assert [entry.name for entry in list_files(given)] == expected
    assert all(file.location.startswith("memory://") for file in list_files(given))


def test_a_remote_file_counts_by_its_checksum(remote, section):
    given = section({"kind": "jsonl", "paths": ["memory://bucket"]})
    before = corpus_digest(given, cache=None)
    assert corpus_digest(given, cache=None) == before
    with remote.open("/bucket/b.jsonl", "wb") as stream:
        stream.write(b"longer than it was before")
    assert corpus_digest(given, cache=None) != before


@pytest.mark.parametrize(
    ("url", "line"), [("memory://none/here", "no such file or directory"), ("nosuch://a/b", "cannot open this URL")]
)
def test_a_url_that_leads_nowhere_is_one_line(remote, section, url, line):
    with pytest.raises(DataError, match=line):
        list_files(section({"kind": "jsonl", "paths": [url]}))


def test_a_url_without_fsspec_says_how_to_install_it(section, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingPackage, match=r"reading memory://a needs the package 'fsspec'.*pip install"):
        list_files(section({"kind": "jsonl", "paths": ["memory://a"]}))


def test_a_remote_file_that_changes_is_refused(remote, section):
    (file, _) = read_corpus(section({"kind": "jsonl", "paths": ["memory://bucket"]}), cache=None).files
    with opened(file) as stream:
        assert stream.read() == b"bucket/b.jsonl"
    reading = opened(file)
    assert reading.__enter__().read() == b"bucket/b.jsonl"
    with remote.open("/bucket/b.jsonl", "wb") as other:
        other.write(b"longer than it was before")
    with pytest.raises(DataError, match=r"memory://.*b.jsonl: this file changed .*another checksum"):
        reading.__exit__(None, None, None)


def test_what_a_client_of_the_network_raises_is_one_line(remote, section, monkeypatch):
    class Refused(Exception):
        pass

    def refuse(*_, **__):
        raise Refused("Name or service not known")

    monkeypatch.setattr(type(remote), "info", refuse)
    with pytest.raises(MachineError, match=r"memory://bucket/a: cannot reach this URL \(seen Refused: Name or service"):
        list_files(section({"kind": "jsonl", "paths": ["memory://bucket/a"]}))


def test_colons_in_a_name_make_no_url(tmp_path, section):
    (tmp_path / "x::y.jsonl").write_text("{}")
    (entry,) = list_files(section({"kind": "jsonl", "paths": [str(tmp_path / "x::y.jsonl")]}))
    assert entry.name == "x::y.jsonl"
