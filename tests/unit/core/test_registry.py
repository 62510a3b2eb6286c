from __future__ import annotations

import os.path
import sys

import pytest

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load, look_up, references_in

KNOWN = {"lower": str.lower, "join": "os.path:join"}


def test_names_references_and_lazy_entries_resolve():
    assert look_up("lower", KNOWN, kind="filter") is str.lower
    assert look_up("join", KNOWN, kind="filter") is os.path.join
    assert look_up("os.path:split", KNOWN, kind="filter") is os.path.split


def test_an_unknown_name_is_suggested():
    with pytest.raises(RecipeError) as caught:
        look_up("lowr", KNOWN, kind="filter")
    assert str(caught.value) == (
        "unknown filter (seen 'lowr', expected one of join, lower, or package.module:name); did you mean 'lower'?"
    )


@pytest.mark.parametrize("reference", [":x", "os:", "os.path", "..os:path", "a b:c", "os:a.b", "os..path:join", ""])
def test_what_is_no_reference_is_refused(reference):
    with pytest.raises(RecipeError, match="not a reference to a filter"):
        load(reference, kind="filter")


def test_a_missing_module_or_attribute_is_named():
    with pytest.raises(RecipeError, match="no module 'nowhere_at_all': is it installed"):
        load("nowhere_at_all.deep:f", kind="filter")
    with pytest.raises(RecipeError, match=r"module 'os\.path' has no 'jion'"):
        load("os.path:jion", kind="filter")


def test_a_module_that_exits_is_refused_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "users_exit.py").write_text("raise SystemExit('done\\nand \\x1b[31mgone')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError) as caught:
        load("users_exit:f", kind="filter")
    assert str(caught.value).startswith("importing this filter fails (seen 'users_exit:f', SystemExit: done)")


def test_a_module_that_lacks_its_own_dependency_names_the_dependency(tmp_path, monkeypatch):
    (tmp_path / "users_filter.py").write_text("import absent_dependency\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match="no module 'absent_dependency'"):
        load("users_filter:f", kind="filter")
    sys.modules.pop("users_filter", None)


def test_references_are_found_in_mappings_and_lists_with_their_keys():
    written = {"train": {"optimizer": {"name": "mine.rules:optimizer"}, "steps": 3}, "filters": ["length", "mine:f"]}
    found = dict(references_in(written))
    assert found == {"train.optimizer.name": "mine.rules:optimizer", "filters.1": "mine:f"}
