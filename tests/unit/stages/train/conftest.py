"""A recipe of a second's training, its dataset and its plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from trainwright.artifact.store import Artifact
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset, make_plan

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
            "sequence_tokens": 16, "batch_tokens": 64, "duration": "8 steps", "precision": "fp32",
            "schedule": {"name": "linear", "warmup": "2 steps"}, "validation": {"every_steps": 4},
        } | train  # fmt: skip
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


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Sixty documents of made-up words."""
    random = Random(3)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "def", "return", "(x)", "=", "+", "\n"]
    texts = [" ".join(random.choices(words, k=random.randint(5, 60))) for _ in range(60)]
    root = tmp_path_factory.mktemp("dataset")
    return make_dataset(root, {"train": texts[:50], "validation": texts[50:55], "test": texts[55:]})


@pytest.fixture
def inputs_for(dataset: Artifact, tmp_path: Path) -> Callable[..., Inputs]:
    """The input artefacts of a recipe."""

    def make(recipe: Recipe, **plan: Any) -> Inputs:
        return {"data": dataset, "plan": make_plan(tmp_path / "plans", recipe, vocabulary=300, **plan)}

    return make
