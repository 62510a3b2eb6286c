"""A copy of the package, to which a test adds what a newcomer would add."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainwright
from trainwright.hardware.machine.shared import HOME, shared_probes
from trainwright.testing.machine import fake_probes

PACKAGE = Path(trainwright.__file__).parent
TESTS = Path(__file__).parents[1]


def call_module(*arguments: str, folder: Path, sources: Path = PACKAGE.parent) -> str:
    """Returns what ``python -m`` prints in a folder; nothing of this user's is read or written."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(sources), str(TESTS)]),
        "XDG_DATA_HOME": str(folder / "data"),
        "TRAINWRIGHT_HOME": str(folder / "home"),
    }
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def run_recipe(root: Path) -> Path:
    """Returns the workspace of a run of ``recipe.yaml`` in a folder, from the command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME, str(root / "home"))
        probes = shared_probes()
        assert probes is not None
        probes.write(fake_probes())  # an invented machine's, so that nothing is measured
    call_module("trainwright", "run", "recipe.yaml", "--workspace", "runs", folder=root)
    return root / "runs"


def document(workspace: Path, name: str) -> dict[str, Any]:
    """A JSON file of an artefact."""
    (path,) = workspace.glob(name)
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


class Copy:
    """The package in another folder, called as a user calls it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "trainwright"
        shutil.copytree(PACKAGE, self.package)

    def add(self, name: str, text: str) -> None:
        """Writes a file that is not there yet."""
        (self.package / name).parent.mkdir(exist_ok=True)
        with (self.package / name).open("x", encoding="utf-8") as file:
            file.write(text)

    def append(self, name: str, text: str) -> None:
        """Adds lines to a file."""
        with (self.package / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def insert(self, name: str, text: str, *, after: str) -> None:
        """Adds a line behind the only line that contains ``after``."""
        path = self.package / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (number,) = (number for number, line in enumerate(lines) if after in line)
        path.write_text("".join([*lines[: number + 1], text, *lines[number + 1 :]]), encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Writes the only place of ``old`` anew."""
        path = self.package / name
        before, after = path.read_text(encoding="utf-8").split(old)
        path.write_text(f"{before}{new}{after}", encoding="utf-8")

    def remove(self) -> None:
        """Removes all of it."""
        shutil.rmtree(self.root)

    def call(self, *arguments: str) -> str:
        """Returns what a command prints."""
        return self.module("trainwright", *arguments)

    def module(self, *arguments: str) -> str:
        """Returns what ``python -m`` prints."""
        return call_module(*arguments, folder=self.root, sources=self.root)

    def json(self, *arguments: str) -> dict[str, Any]:
        """Returns the document that a command prints."""
        document: dict[str, Any] = json.loads(self.call(*arguments, "--json"))
        return document


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    """A fresh copy."""
    copy = Copy(tmp_path / "copy")
    yield copy
    copy.remove()


@pytest.fixture(scope="session")
def run_module() -> Callable[..., str]:
    """Calls a module as ``python -m`` does, with the package as it is."""
    return call_module
