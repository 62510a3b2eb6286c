from __future__ import annotations

import os
import socket
import sysconfig
from contextlib import chdir
from pathlib import Path

import pytest

from trainwright.core.errors import DataError, RecipeError
from trainwright.stages.data.corpus.entries import CorpusFile, SkippedFile
from trainwright.stages.data.corpus.files import list_files


def names(section):
    return [entry.name for entry in list_files(section)]


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
    found = list_files(section({"kind": "python-stdlib"}))
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
    with pytest.raises(DataError, match=rf"{line}.*; check data.sources.0.paths.0") as caught:
        list_files(section({"kind": "files", "paths": [str(tmp_path / path)]}))
    assert "\n" not in str(caught.value)


def skipped(section):
    return {entry.name: entry.reason for entry in list_files(section) if isinstance(entry, SkippedFile)}


def special_files(folder):
    """One of each file that has no bytes to read; a named pipe without a writer would block whoever opens it."""
    folder.mkdir()
    (folder / "good.txt").write_text("good")
    os.mkfifo(folder / "pipe.txt")
    (folder / "gone.txt").symlink_to("nowhere")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "elsewhere").symlink_to(folder.parent)
    with socket.socket(socket.AF_UNIX) as listener, chdir(folder):  # a socket's path may be about 100 bytes long
        listener.bind("socket.txt")


REASONS = {
    "elsewhere": "link to a directory",
    "gone.txt": "dangling link",
    "loop.txt": "loop of links",
    "pipe.txt": "named pipe",
    "socket.txt": "socket",
}


def test_what_holds_no_bytes_is_skipped_for_a_reason(tmp_path, section):
    special_files(tmp_path / "n")
    source = section({"kind": "files", "paths": [str(tmp_path / "n")]})
    assert skipped(source) == REASONS
    assert [entry.name for entry in list_files(source) if isinstance(entry, CorpusFile)] == ["good.txt"]
    of_a_glob = {name: reason for name, reason in REASONS.items() if name.endswith(".txt")}
    assert skipped(section({"kind": "files", "paths": [str(tmp_path / "n" / "*.txt")]})) == of_a_glob


def test_names_that_are_not_wanted_are_not_skipped(tmp_path, section):
    special_files(tmp_path / "n")
    source = section({"kind": "files", "paths": [str(tmp_path / "n")], "include": ["good.*"]})
    assert skipped(source) == {"elsewhere": "link to a directory"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("pipe.txt", r"pipe.txt: a named pipe \(expected a file or directory\); check data.sources.0.paths.0"),
        ("gone.txt", r"gone.txt: a dangling link; check data.sources.0.paths.0"),
        ("loop.txt", r"loop.txt: cannot read this file \(seen Too many levels of symbolic links\)"),
        ("x" * 300, r"cannot read this file \(seen File name too long\)"),
        ("a\0b", r"data.sources.0.paths.0: not a path"),
    ],
)
def test_a_path_of_the_recipe_itself_must_be_right(tmp_path, section, name, line):
    special_files(tmp_path / "n")
    with pytest.raises(DataError, match=line):
        list_files(section({"kind": "files", "paths": [f"{tmp_path / 'n'}/{name}"]}))


def test_a_tilde_in_a_path_is_the_home_directory(tree, section, monkeypatch):
    monkeypatch.setenv("HOME", str(tree.parent))
    assert names(section({"kind": "files", "paths": ["~/tree"]})) == names(
        section({"kind": "files", "paths": [str(tree)]})
    )
    assert names(section({"kind": "files", "paths": ["~/tree/*.md"]})) == ["a.md"]
    with pytest.raises(RecipeError, match="home of an unknown user"):
        list_files(section({"kind": "files", "paths": ["~no-such-user-at-all/x"]}))


def test_links_that_lead_back_are_entered_once(tmp_path, section):
    """glob.glob follows both loops through every combination: it would not end."""
    root = tmp_path / "n"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a.txt").write_text("a")
    (root / "b.txt").write_text("b")
    (root / "one").symlink_to(root)
    (root / "two").symlink_to(root)
    assert names(section({"kind": "files", "paths": [str(root / "**" / "*.txt")]})) == ["b.txt", "deep/a.txt"]
    assert names(section({"kind": "files", "paths": [str(root / "**")]})) == ["b.txt", "deep/a.txt"]


def refuse_to_list(monkeypatch, name):
    real = os.scandir

    def scandir(path):
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_directory_that_cannot_be_listed_is_skipped(tree, section, monkeypatch):
    refuse_to_list(monkeypatch, "deep")
    expected = {"deep/": "directory: permission denied"}
    assert skipped(section({"kind": "files", "paths": [str(tree)]})) == expected
    assert skipped(section({"kind": "files", "paths": [str(tree / "**" / "*.txt")]})) == expected


def test_a_directory_of_the_recipe_that_cannot_be_listed_is_one_line(tree, section, monkeypatch):
    refuse_to_list(monkeypatch, "tree")
    with pytest.raises(DataError, match=r"tree: cannot list this directory \(seen Permission denied\)"):
        list_files(section({"kind": "files", "paths": [str(tree)]}))
