from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, MissingPackage
from trainwright.stages.data import sources
from trainwright.stages.data.sources import corpus_digest, corpus_files


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    for name in ("b.txt", "a.md", "deep/c.txt", "deep/.hidden.txt", ".git/config.txt", "deep/more/d.txt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def names(section):
    return [file.name for file in corpus_files(section)]


def test_a_directory_gives_its_files_in_order_without_hidden_ones(tree, section):
    assert names(section({"kind": "files", "paths": [str(tree)]})) == ["a.md", "b.txt", "deep/c.txt", "deep/more/d.txt"]


def test_include_chooses_by_name(tree, section):
    assert names(section({"kind": "files", "paths": [str(tree)], "include": ["*.md"]})) == ["a.md"]


def test_a_glob_is_named_from_its_fixed_part(tree, section):
    assert names(section({"kind": "files", "paths": [str(tree / "*/*.txt")]})) == ["deep/c.txt"]
    assert names(section({"kind": "files", "paths": [str(tree / "**/*.txt")]})) == [
        "b.txt",
        "deep/c.txt",
        "deep/more/d.txt",
    ]


def test_paths_keep_their_order_and_their_names_apart(tree, section):
    found = names(section({"kind": "files", "paths": [str(tree / "b.txt"), str(tree / "a.md")]}))
    assert found == ["0/b.txt", "1/a.md"]


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path, section):
    (tmp_path / "a[1].txt").write_text("x")
    assert names(section({"kind": "files", "paths": [str(tmp_path / "a[1].txt")]})) == ["a[1].txt"]


def test_a_name_that_is_no_text_is_shown_with_escapes(tmp_path, section):
    (tmp_path / "n").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "n") + b"/\xff.txt")).write_text("x")
    (name,) = names(section({"kind": "files", "paths": [str(tmp_path / "n")]}))
    assert name.encode().decode() == name
    assert name.endswith("ff.txt")


def test_the_standard_library_without_what_was_installed_into_it(section):
    found = corpus_files(section({"kind": "python-stdlib"}))
    assert {"json/__init__.py", "os.py"} <= {file.name for file in found}
    assert not any("site-packages" in file.name or "__pycache__" in file.name for file in found)
    assert all(file.location.startswith(sysconfig.get_path("stdlib")) for file in found)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("nowhere/at/all", "no such file or directory"),
        ("*.parquet", "no file matches"),
        ("emptied", "no file matches"),
    ],
)
def test_a_path_that_gives_nothing_is_one_line(tmp_path, section, path, line):
    (tmp_path / "emptied").mkdir()
    with pytest.raises(DataError, match=rf"{line}.*; check data.sources.0.paths") as caught:
        corpus_files(section({"kind": "files", "paths": [str(tmp_path / path)]}))
    assert "\n" not in str(caught.value)


def test_an_empty_corpus_is_one_line(tmp_path, section):
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match=r"the corpus is empty \(seen 1 files, 0 bytes"):
        corpus_files(section({"kind": "files", "paths": [str(tmp_path / "a.txt")]}))


def test_a_dangling_link_is_one_line(tmp_path, section):
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "a.txt").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"a.txt: cannot read this file \(seen No such file"):
        corpus_files(section({"kind": "files", "paths": [str(tmp_path / "n")]}))


def test_a_directory_that_cannot_be_listed_is_one_line(tree, section, monkeypatch):
    real = os.scandir

    def refuse(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"deep: cannot list this directory \(seen Permission denied\)"):
        corpus_files(section({"kind": "files", "paths": [str(tree)]}))


# --------------------------------------------------------------------------------------------------------------- digest
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


def test_the_cache_spares_reading_what_did_not_change(tree, tmp_path, section, monkeypatch):
    given, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "cache" / "digests.json"
    first = corpus_digest(given, cache=cache)
    read = []
    real = sources.file_digest
    monkeypatch.setattr(sources, "file_digest", lambda path: read.append(path.name) or real(path))
    assert corpus_digest(given, cache=cache) == first
    assert read == []
    (tree / "b.txt").write_text("other text")
    assert corpus_digest(given, cache=cache) != first
    assert read == ["b.txt"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_cache_is_made_again(tree, tmp_path, section, damage):
    given, cache = section({"kind": "files", "paths": [str(tree)]}), tmp_path / "digests.json"
    cache.write_bytes(damage)
    assert corpus_digest(given, cache=cache) == corpus_digest(given, cache=None)
    assert corpus_digest(given, cache=cache) == corpus_digest(given, cache=None)


def test_an_unreadable_file_is_named(tree, section, monkeypatch):
    real = Path.open

    def refuse(self, *args, **kwargs):
        if self.name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        DataError, match=r"b.txt: cannot read this file \(seen Permission denied\); check its permissions"
    ):
        corpus_digest(section({"kind": "files", "paths": [str(tree)]}), cache=None)


def test_asking_for_the_digest_loads_nothing_heavy(tree):
    code = (
        "import sys; from trainwright.stages.data.sources import corpus_digest\n"
        "from trainwright.spec.recipe_data import DataSection\n"
        f"s = DataSection.model_validate({{'sources': [{{'kind': 'files', 'paths': [{str(tree)!r}]}}]}})\n"
        "corpus_digest(s, cache=None)\n"
        "print([m for m in ('numpy', 'torch', 'pyarrow', 'fsspec', 'tokenizers', 'gigatoken') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --------------------------------------------------------------------------------------------------------------- remote
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
    assert names(given) == expected
    assert all(file.location.startswith("memory://") for file in corpus_files(given))


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
        corpus_files(section({"kind": "jsonl", "paths": [url]}))


def test_a_url_without_fsspec_says_how_to_install_it(section, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingPackage, match=r"reading memory://a needs the package 'fsspec'.*pip install"):
        corpus_files(section({"kind": "jsonl", "paths": ["memory://a"]}))
