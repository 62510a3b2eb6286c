from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from trainwright.core.errors import RecipeError
from trainwright.core.fingerprint import canonical, digest, file_digest, fingerprint, source_digest


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    names: tuple[str, ...] = ("a",)


class Section(BaseModel):
    lr: float = 3e-4
    names: tuple[str, ...] = ("a",)


def test_the_text_is_json_with_sorted_keys():
    assert canonical({"b": [1, None, True], "a": "é"}) == '{"a":"é","b":[1,null,true]}'


def test_records_count_by_their_fields():
    assert canonical(Shape(width=3)) == canonical({"names": ["a"], "width": 3})
    assert canonical({"s": Section()}) == '{"s":{"lr":0.0003,"names":["a"]}}'


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))
    for value in ({1, 2}, object(), b"bytes", {1: "a"}, {"a": {True: "b"}}, [{None: 1}], Shape):
        with pytest.raises(TypeError, match="canonical form"):
            canonical(value)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers() | st.text(st.characters(codec="utf-8"))))
def test_order_of_keys_does_not_matter(value):
    backwards = dict(reversed(list(value.items())))
    assert digest(value) == digest(backwards)
    assert digest(value) == hashlib.sha256(canonical(value).encode()).hexdigest()
    assert json.loads(canonical(value)) == value


def test_a_fingerprint_is_the_same_in_every_process():
    code = (
        "from trainwright.core.fingerprint import fingerprint;"
        "print(fingerprint(stage='data', version=1, identity={'b': 0.1, 'a': 'x'}, inputs={'y': '1', 'x': '2'}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = fingerprint(stage="data", version=1, identity={"a": "x", "b": 0.1}, inputs={"x": "2", "y": "1"})
    assert other == here


def test_every_part_of_a_fingerprint_counts():
    base = {"stage": "data", "version": 1, "identity": {"a": 1}, "inputs": {"x": "1"}}
    changes = ({}, {"stage": "train"}, {"version": 2}, {"identity": {"a": 2}}, {"inputs": {}})
    assert len({fingerprint(**base | change) for change in changes}) == 5


def test_a_file_is_its_bytes(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"x" * 3_000_001)
    assert file_digest(path) == hashlib.sha256(b"x" * 3_000_001).hexdigest()


# ------------------------------------------------------------------------------------------------------ plug-ins' code
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
