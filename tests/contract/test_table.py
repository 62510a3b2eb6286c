"""The table of additions in CONTRIBUTING.md: its files and contracts are there, and a test adds each kind."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "trainwright"
HEAD = "| new | file"
HELD_ELSEWHERE = {"decision", "recipe that comes along"}
"""Files that need no line anywhere: tests/architecture/test_text.py reads every page, and
tests/unit/pipeline/recipes/test_shipped.py every recipe."""


def rows() -> dict[str, list[str]]:
    """The cells of each row, by what is added."""
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(HEAD)) + 2
    stop = next(number for number, line in enumerate(lines[start:], start) if not line.startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:stop]]
    return {first: rest for first, *rest in cells}


ROWS = rows()


@pytest.mark.parametrize("kind", ROWS)
def test_its_files_are_there(kind):
    inside, _, held_by = ROWS[kind]
    paths = [path for path in re.findall(r"`([^`]+)`", inside) if "/" in path]
    for path in paths:
        # The file that is to be added has a name in capitals: its folder is there.
        folder = re.sub(r"/?[^/]*[A-Z]{4}.*", "", path)
        assert (PACKAGE / folder).exists() or (ROOT / folder).exists(), path
    for path in re.findall(r"`(tests/[^`]+)`", held_by):
        assert (ROOT / path).exists(), path


REGISTRIES = [pair for inside, *_ in ROWS.values() for pair in re.findall(r"`([A-Z]{4,})` in `([^`]+)`", inside)]


@pytest.mark.parametrize(("registry", "file"), REGISTRIES)
def test_its_registry_is_there(registry, file):
    text = (PACKAGE / file).read_text(encoding="utf-8")
    assert re.search(rf"^{registry}\b.*=", text, re.MULTILINE)


@pytest.mark.parametrize("kind", [kind for kind, (*_, held_by) in ROWS.items() if "Contract" in held_by])
def test_its_contract_is_there(kind):
    (name,) = re.findall(r"`(\w+)Contract`", ROWS[kind][2])
    assert hasattr(importlib.import_module(f"trainwright.testing.contract_{name.lower()}"), f"{name}Contract")


def kinds_tried(*names: str) -> set[str]:
    """The kinds that tests of some modules add: ``test_a_model_family_is_a_file``."""
    text = "".join((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8") for name in names)
    return {kind.replace("_", " ") for kind in re.findall(r"^def test_an?_(\w+?)_is_an?_", text, re.MULTILINE)}


def test_every_kind_is_added_inside():
    assert kinds_tried("test_additions_in_package", "test_additions_by_line") == set(ROWS) - HELD_ELSEWHERE


def test_every_kind_with_a_way_from_outside_is_added_from_there():
    assert kinds_tried("test_additions") == {kind for kind, (_, outside, _) in ROWS.items() if outside}
