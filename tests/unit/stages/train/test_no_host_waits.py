"""A step never waits for the device.

On torch's fake tensors, which have no values, reading one is an error, and so is a shape that depends on one. The step
is the one that a trainer makes, with its gate, its scale of the loss and its average of the weights. The gate decides
as beside an accelerator: on a processor there is nobody to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainwright.artifact.events import Events
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.shards import TokenDataset
from trainwright.model.build import build_network
from trainwright.model.tasks.task import load_task
from trainwright.stages.train.checkpoints import Checkpoints
from trainwright.stages.train.stage import settings_of
from trainwright.stages.train.trainer import Trainer

WATCHING = {"spike": "skip", "not_finite": "skip", "window": 8}


@pytest.fixture
def fake() -> FakeTensorMode:
    return FakeTensorMode()


@pytest.fixture
def make_trainer(fake, make_recipe, inputs_for, tmp_path, monkeypatch) -> Callable[..., Trainer]:
    """A trainer of these ``train`` keys, its tensors fake."""
    monkeypatch.setattr("trainwright.stages.train.trainer.tensor_bytes", lambda tensors: 0)  # which take no memory

    def make(*, family: str = "llama", **train: Any) -> Trainer:
        recipe = make_recipe(family=family, exec_micro_batch=2, **train)
        inputs = inputs_for(recipe, precision=recipe.train.precision)
        dataset = TokenDataset.open(inputs["dataset"].path)
        settings = settings_of(recipe, read_plan(inputs["plan"].file(PLAN)), dataset)
        checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=dataset.tokenizer_path, events=Events(None, run="t"))
        with fake:
            network = build_network(settings.model, dtype=settings.dtype, kernels=recipe.train.exec.kernels)
            task = load_task(recipe, dataset)
            trainer = Trainer(task, network, dataset, checkpoints, settings, recipe=recipe, out=tmp_path)
        monkeypatch.setattr(trainer.step.gate, "_here", False)
        monkeypatch.setattr(trainer.step.gate, "_masks", recipe.train.optimizer.name == "adamw")  # its kernels take it
        trainer.clock.start()
        return trainer

    return make


@pytest.mark.parametrize(
    "train",
    [
        {},
        {"family": "gpt2", "document_masking": True},
        {"optimizer": {"name": "muon"}, "document_masking": True},
        {"precision": "bf16", "faults": WATCHING},
        {"precision": "fp16", "faults": WATCHING},
        {"ema": {"decay": 0.9, "early": "unbiased"}},
    ],
    ids=str,
)
def test_a_step_asks_the_device_for_nothing(fake, make_trainer, train: dict[str, Any]) -> None:
    trainer = make_trainer(**train)
    assert (trainer.step.scale is not None) == (train.get("precision") == "fp16")
    with fake:
        for _ in range(2):
            update = trainer.step({"tokens": torch.zeros(4, 17, dtype=torch.long)}, 1.0)
    assert update.loss_sum.shape == update.grad_norm.shape == ()
    assert trainer.step.gate.faults(reading=False) == []


def test_a_step_that_read_a_value_would_be_noticed(fake, make_trainer, monkeypatch) -> None:
    trainer = make_trainer()
    monkeypatch.setattr(trainer.step.gate, "_here", True)
    with fake, pytest.raises(RuntimeError, match="_local_scalar_dense"):
        trainer.step({"tokens": torch.zeros(4, 17, dtype=torch.long)}, 1.0)
