"""The source as these tests see it: tracked files, parsed modules, the import graph."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file of the project."""

    path: Path

    @cached_property
    def name(self) -> str:
        """The path as the repository sees it, with forward slashes."""
        return self.path.relative_to(REPOSITORY).as_posix()

    @cached_property
    def module(self) -> str:
        """The name it is imported by, for a file of the package."""
        return self.name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def tracked() -> tuple[Path, ...]:
    """The files that git tracks or would track: ignored outputs are not the project."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return tuple(path for name in sorted(listed.split("\0")) if name and (path := REPOSITORY / name).is_file())


@pytest.fixture(scope="session")
def sources(tracked: tuple[Path, ...]) -> tuple[Source, ...]:
    """Every Python file: the package, its tests and its benchmarks."""
    return tuple(Source(path) for path in tracked if path.suffix == ".py")


@pytest.fixture(scope="session")
def package(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """The files of the package alone."""
    return tuple(source for source in sources if source.name.startswith("src/trainwright/"))


@pytest.fixture(scope="session")
def graph() -> grimp.ImportGraph:
    """Who imports whom inside the package; imports inside functions and for type checking are edges too."""
    return grimp.build_graph("trainwright", cache_dir=None)
