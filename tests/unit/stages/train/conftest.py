"""A recipe of a second's training, its dataset and its plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from fixtures.words import dataset
from trainwright.artifact.events import Events, Listener
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import Artifact
from trainwright.spec.recipe import Recipe
from trainwright.stages.train import run
from trainwright.testing.artifacts import make_plan

__all__ = ["dataset"]

RecipeMaker = Callable[..., Recipe]
Inputs = dict[str, Artifact]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def make_recipe() -> RecipeMaker:
    """A recipe with these ``train`` keys over small defaults; ``exec`` keys are given as ``exec_<key>``."""

    def make(*, family: str = "llama", **train: Any) -> Recipe:
        how = {key.removeprefix("exec_"): train.pop(key) for key in list(train) if key.startswith("exec_")}
        section = {
            "sequence_tokens": 16,
            "batch_tokens": 64,
            "duration": "8 steps",
            "precision": "fp32",
            "schedule": {"name": "linear", "warmup": "2 steps"},
            "validation": {"every_steps": 4},
        } | train
        section["exec"] = {"compile": False, "tensorboard": False, "checkpoint_every": 0, "log_every_steps": 2} | how
        model = {"family": family, "layers": 2, "width": 32, "heads": 2, "context_tokens": 32}
        return Recipe.model_validate(
            {
                "name": "tiny",
                "seed": 7,
                "model": model,
                "data": {"sources": [{"kind": "python-stdlib"}]},
                "train": section,
            }
        )

    return make


@pytest.fixture
def train() -> Callable[..., StageResult]:
    """Runs the stage on inputs, into a folder."""

    def run_stage(recipe: Recipe, inputs: Inputs, out: Path, listeners: tuple[Listener, ...] = ()) -> StageResult:
        out.mkdir(parents=True, exist_ok=True)
        with Events(None, run="tiny", listeners=listeners) as events:
            return run(Context(recipe=recipe, inputs=inputs, out=out, root=out.parent, events=events))

    return run_stage


@pytest.fixture
def inputs_for(dataset: Artifact, tmp_path: Path) -> Callable[..., Inputs]:
    """The input artefacts of a recipe; the plan has the recipe's micro batch where it says one."""

    def make(recipe: Recipe, **plan: Any) -> Inputs:
        if recipe.train.exec.micro_batch != "auto":
            plan = {"micro_batch": recipe.train.exec.micro_batch} | plan
        shelf = Path(mkdtemp(dir=tmp_path))  # an artefact is never made over another
        return {"dataset": dataset, "plan": make_plan(shelf, recipe, vocabulary=300, **plan)}

    return make
