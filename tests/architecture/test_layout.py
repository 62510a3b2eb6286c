"""Tests mirror the source: the place where a module is tested is never looked for."""

from __future__ import annotations

from pathlib import PurePosixPath

SMALL_LINES = 40
"""A module of so few lines may be tested where it is used."""


def test_every_module_has_a_test_of_its_name(package, repository):
    missing = []
    for source in package:
        inside = PurePosixPath(source.name).relative_to("src/trainwright")
        if inside.name in {"__init__.py", "__main__.py"} or len(source.text.splitlines()) <= SMALL_LINES:
            continue
        test = PurePosixPath("tests/unit") / inside.parent / f"test_{inside.name.lstrip('_')}"
        if not (repository / test).is_file():
            missing.append(str(test))
    assert not missing, f"modules without a test of their name: {missing}"


def test_package_folders_say_what_they_are(package):
    silent = [source.name for source in package if source.path.name == "__init__.py" and not _docstring(source.text)]
    assert not silent, f"__init__.py without a docstring: {silent}"


def test_no_test_folder_is_a_package(sources):
    packages = [s.name for s in sources if s.name.startswith("tests/") and s.path.name == "__init__.py"]
    assert not packages, f"tests are imported by path (--import-mode=importlib), __init__.py is not needed: {packages}"


def _docstring(text: str) -> bool:
    return text.lstrip().startswith('"""')
