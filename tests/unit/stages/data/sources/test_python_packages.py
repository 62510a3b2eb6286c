"""Pieces of the library's files: labelled by package, whole lines, a file in one group, without tests."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.corpus.sources import PACKAGES, PythonPackagesSource
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.check import problems
from trainwright.stages.data.corpus.entries import CorpusFile, FileRange
from trainwright.stages.data.corpus.files import list_files
from trainwright.stages.data.sources import source_of
from trainwright.stages.data.sources.python_packages import pieces

TWO = {"kind": "python-stdlib-packages", "packages": ["json", "wsgiref"], "lines": 10}


def read(data: bytes, name: str, **keys):
    section = PythonPackagesSource.model_validate(TWO | keys)
    file = CorpusFile(source=0, name=name, location=name, size_bytes=len(data), version="1")
    return list(source_of(section).read(io.BytesIO(data), FileRange(file=file)))


def test_a_file_becomes_pieces_of_its_package() -> None:
    lines = [f"line {number}\n" for number in range(24)]
    found = read("".join(lines).encode(), "1/sub/a.py")
    assert [each.text for each in found] == ["".join(lines[:12]), "".join(lines[12:])]
    assert [each.position for each in found] == [":1", ":13"]
    assert {(each.label, each.group) for each in found} == {("wsgiref", "wsgiref/sub/a.py")}
    assert [each.size_bytes for each in found] == [len(each.text.encode()) for each in found]


@pytest.mark.parametrize("size", [1, 3, 10, 99])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 24, 31])
def test_pieces_are_the_file_and_about_equally_long(size, count) -> None:
    lines = [f"{number}\r\n" for number in range(count)]
    made = list(pieces(lines, size))
    assert "".join(text for _, text in made) == "".join(lines)
    lengths = [text.count("\n") for _, text in made]
    assert max(lengths) - min(lengths) <= 1
    assert len(made) == 1 or size / 2 <= sum(lengths) / len(made) <= 2 * size
    assert [first for first, _ in made] == [1 + sum(lengths[:number]) for number in range(len(made))]


def test_a_file_that_cannot_be_decoded_is_one_broken_record() -> None:
    (record,) = read(b"a\nx = '\xff'\n" * 30, "0/a.py")
    assert (record.text, record.problem, record.label) == (None, "not UTF-8", None)


def test_the_packages_of_this_python_are_there_without_their_tests() -> None:
    section = DataSection.model_validate({"sources": [{"kind": "python-stdlib-packages"}]})
    assert section.labelled
    files = list_files(section)
    packages = [PACKAGES[int(file.name.partition("/")[0])] for file in files]
    assert {Path(file.location).relative_to(source_of(section.sources[0]).library()[0]).parts[0] for file in files} == {
        *PACKAGES
    }
    assert min(packages.count(name) for name in PACKAGES) >= 12
    assert not [file.name for file in files if {"test", "tests", "idle_test"} & set(file.name.split("/"))]


@pytest.mark.parametrize("packages", [["json"], ["json", "json"], ["json", "../email"], ["json", ""]])
def test_what_is_no_choice_of_packages_is_refused(packages) -> None:
    with pytest.raises(ValidationError):
        PythonPackagesSource.model_validate(TWO | {"packages": packages})


def test_a_package_that_this_python_lacks_is_named() -> None:
    section = DataSection.model_validate({"sources": [TWO | {"packages": ["json", "no_such_package"]}]})
    (problem,) = problems(section)
    assert "no_such_package" in str(problem) and "no such file or directory" in str(problem)


def test_the_recipe_tells_the_packages_that_the_source_gives() -> None:
    path = Path(__file__).parents[5] / "recipes" / "bert-classify.yaml"
    recipe = Recipe.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert recipe.task.labels == PACKAGES and recipe.data.labelled
