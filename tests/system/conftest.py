"""A whole run of a tiny recipe, made once, as a user would make it: from the command line, in its own process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

RECIPE = """
name: tiny
seed: 5
model: {family: llama, layers: 2, width: 32, heads: 2, context_tokens: 64}
data:
  sources:
    - kind: files
      paths: [%s]
      include: ["*.txt"]
  tokenizer: {vocabulary: 320}
train:
  sequence_tokens: 32
  batch_tokens: 128
  duration: 150 steps
  precision: fp32
  optimizer: {name: muon, lr: 3e-3}
  schedule: {warmup: 5 steps}
  validation: {every_steps: 50}
  exec: {compile: false, threads: 1, checkpoint_every: 100 ms, micro_batch: 2}
evaluate:
  prompts: ["alpha beta"]
  max_new_tokens: 8
serve:
  port: 0
  demo: {prompt: "alpha beta", max_tokens: 8}
"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A recipe and a workspace."""

    recipe: Path
    workspace: Path

    def command(self, *arguments: str) -> list[str]:
        words = [sys.executable, "-m", "trainwright", arguments[0], str(self.recipe), *arguments[1:]]
        return [*words, "--workspace", str(self.workspace)]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=600)

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def artifact(self, stage: str) -> Path:
        (path,) = (path for path in self.workspace.glob(f"{stage}-*") if path.suffix != ".partial")
        return path


@pytest.fixture(scope="session")
def project_of() -> type[Project]:
    """Makes a project of a recipe and a workspace."""
    return Project


def write_corpus(folder: Path) -> None:
    """Two hundred short documents of made-up sentences."""
    words = ["alpha", "beta", "gamma", "delta", "return", "(x)", "=", "+", "print", "\n    "]
    folder.mkdir(parents=True)
    for number in range(200):
        text = " ".join(words[(number * 7 + position * position) % len(words)] for position in range(40 + number % 50))
        (folder / f"{number:03d}.txt").write_text(f"{number} {text}")


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Project]:
    """The tiny recipe with its corpus in a folder of its own, and with this text after it."""

    def make(text: str = "") -> Project:
        root = tmp_path_factory.mktemp("project")
        write_corpus(root / "corpus")
        recipe = root / "tiny.yaml"
        recipe.write_text(RECIPE % (root / "corpus") + text)
        return Project(recipe=recipe, workspace=root / "runs")

    return make


@pytest.fixture(scope="session")
def finished(make_project: Callable[..., Project]) -> Project:
    """The tiny recipe, run to its end."""
    project = make_project()
    done = project.call("run")
    assert done.returncode == 0, done.stderr + done.stdout
    return project


@pytest.fixture(scope="session")
def begun(make_project: Callable[..., Project]) -> Project:
    """The first updates of the tiny recipe, and all that comes after them: too few for rounding to grow."""
    project = make_project()
    done = project.call("run", "train.duration=12 steps")
    assert done.returncode == 0, done.stderr + done.stdout
    return project


@pytest.fixture
def fork(finished: Project, tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """Copies of the finished workspace that hold only these stages."""

    def copy(name: str, stages: tuple[str, ...]) -> Project:
        workspace = tmp_path / name
        for stage in stages:
            source = finished.artifact(stage)
            shutil.copytree(source, workspace / source.name)
        return Project(recipe=finished.recipe, workspace=workspace)

    yield copy
    shutil.rmtree(tmp_path, ignore_errors=True)
