"""Another code of a plug-in, or of what it imports from beside it, is another digest."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.core.source_digest import code_of, source_digest


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """A package on the path that must not be run to be digested."""
    folder = tmp_path / "my_plug_in"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('run')\n")
    (folder / "filters.py").write_text("LIMIT = 3\n")
    (folder / "deep" / "words.py").write_text("WORDS = ()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_only_what_cannot_be_called_declares_code_and_ours_is_left_out(monkeypatch):
    class Exporter:
        CODE = ("write",)
        write = "no.such:thing"

    ours = "trainwright.model.decoder:Decoder"
    kind = SimpleNamespace(
        CODE=("make", "form", "none", "ours"), make="their.tasks:make", form="forms", none=None, ours=ours
    )
    monkeypatch.setitem(sys.modules, "their", SimpleNamespace(KIND=kind, Exporter=Exporter))
    assert code_of("their:KIND") == ("their:KIND", "their.tasks:make", "forms")
    assert code_of("their:Exporter") == ("their:Exporter",)


def test_a_folder_twice_on_the_search_path_changes_nothing(plug_in, tmp_path, monkeypatch):
    (plug_in / "__init__.py").unlink()
    once = source_digest("my_plug_in.filters:LIMIT")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_digest("my_plug_in.filters:LIMIT") == once


@pytest.mark.parametrize("changed", ["filters.py", "deep/words.py", "deep/new.py"])
def test_any_file_of_a_plug_in_s_package_changes_its_digest(plug_in, changed):
    before = source_digest("my_plug_in.filters:short")
    assert source_digest("my_plug_in.filters:short") == before
    (plug_in / "notes.txt").write_text("no code")
    assert source_digest("my_plug_in.filters:short") == before
    (plug_in / changed).write_text("LIMIT = 4\n")
    assert source_digest("my_plug_in.filters:short") != before


def test_a_module_that_stands_alone_is_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_module.py").write_text("x = 1\n")
    before = source_digest("my_module:x")
    (tmp_path / "other.py").write_text("x = 1\n")
    assert source_digest("my_module:x") == before
    (tmp_path / "my_module.py").write_text("x = 2\n")
    assert source_digest("my_module:x") != before


BESIDE = {
    "my_module.py": "import json, helper\n\n\ndef keep(text):\n    from words.lists import WORDS\n",
    "helper.py": "from deeper import x\n",
    "deeper.py": "import helper\n",
    "words/__init__.py": "",
    "words/lists.py": "WORDS = ()\n",
    "unused.py": "x = 1\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A module with helpers beside it; one of them imports another in a circle."""
    place = tmp_path / "project"
    (place / "words").mkdir(parents=True)
    for name, text in BESIDE.items():
        (place / name).write_text(text)
    monkeypatch.syspath_prepend(str(place))
    return place


@pytest.mark.parametrize("changed", ["helper.py", "deeper.py", "words/lists.py", "words/new.py"])
def test_what_a_module_imports_from_its_folder_changes_its_digest(folder, changed):
    before = source_digest("my_module:keep")
    (folder / "unused.py").write_text("x = 2\n")
    assert source_digest("my_module:keep") == before
    (folder / changed).write_text("import nothing_that_is_here\nthis is no Python\n")
    assert source_digest("my_module:keep") != before


def test_a_package_s_neighbours_count_too(folder):
    (folder / "words" / "lists.py").write_text("import helper\n")
    before = source_digest("words.lists:WORDS")
    (folder / "deeper.py").write_text("x = 3\n")
    assert source_digest("words.lists:WORDS") != before


def test_installed_packages_are_no_neighbours(tmp_path, monkeypatch):
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    for name in ("installed", "neighbour"):
        (place / f"{name}.py").write_text("import neighbour\n")
    before = source_digest("installed:x")
    (place / "neighbour.py").write_text("x = 2\n")
    assert source_digest("installed:x") == before


def test_a_module_without_a_file_has_a_digest_of_its_own():
    assert {"sys", "itertools"} <= set(sys.builtin_module_names)
    assert source_digest("sys:path") != source_digest("itertools:chain")


def test_ours_is_the_module_alone():
    assert source_digest("trainwright.core.units:parse_bytes") != source_digest("trainwright.core.errors:DataError")


@pytest.mark.parametrize("reference", ["no_such_module_at_all:x", "trainwright.no_such.module:x", "trainwright.nope:x"])
def test_code_that_is_not_there_is_a_recipe_error(reference):
    with pytest.raises(RecipeError, match="cannot find this plug-in's code"):
        source_digest(reference)
