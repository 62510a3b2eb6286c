"""Weights that are no numbers: never a result, never kept, never gone back to, whatever is done about faults."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fixtures.told_training import train
from trainwright.artifact.checkpoint.index import checkpoints_in, step_of
from trainwright.core.errors import TrainingError
from trainwright.stages.train.faults.weights import not_finite
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.saving import reading
from trainwright.stages.train.world import World

EACH = 1e-9
"""Seconds between checkpoints: one after every step."""


@pytest.fixture
def make(make_recipe):
    def made(*, lr=1e38, duration="20 steps", **train):
        schedule = {"name": "linear", "warmup": "1 steps"}
        return make_recipe(optimizer={"name": "adamw", "lr": lr}, duration=duration, schedule=schedule, **train)

    return made


def stopped(recipe, inputs, out, *listeners) -> str:
    with pytest.raises(TrainingError) as raised:
        train(recipe, inputs, out, *listeners)
    assert raised.value.exit_code == 5
    assert not (out / "model.safetensors").exists()
    assert not (out / "summary.json").exists()
    return str(raised.value)


def assert_finite_checkpoints(out) -> None:
    for path in checkpoints_in(out / "checkpoints"):
        assert all(tensor.isfinite().all() for tensor in load_file(path / "model.safetensors").values()), path


@pytest.mark.parametrize("action", ["stop", "skip", "rollback"])
def test_the_last_update_is_looked_at(action, make, inputs_for, tmp_path) -> None:
    recipe = make(lr=1e300, duration="1 steps", faults={"not_finite": action})
    said = stopped(recipe, inputs_for(recipe), tmp_path / "out")
    assert "the weights are not finite after step 1" in said
    assert_finite_checkpoints(tmp_path / "out")


def test_leaving_updates_out_ends_at_once_where_the_weights_are_broken(make, inputs_for, tmp_path) -> None:
    recipe, made = make(faults={"not_finite": "skip"}), []
    said = stopped(recipe, inputs_for(recipe), tmp_path / "out", lambda event: made.append(event.name))
    assert "by step 2 " in said
    assert "are not finite, which no update that is left out can mend" in said
    assert "train/skipped" not in made


def test_a_broken_checkpoint_is_neither_written_nor_gone_back_to(make, inputs_for, tmp_path) -> None:
    faults, told = {"not_finite": "rollback"}, []
    recipe = make(faults=faults, exec_checkpoint_every=EACH, exec_keep_checkpoints=1)
    said = stopped(recipe, inputs_for(recipe), tmp_path / "out", lambda event: told.append(event.text))
    assert sum("back to step 0" in (text or "") for text in told) == 1
    assert "as they were after the run went back to step-00000000 before" in said
    assert [step_of(path) for path in checkpoints_in(tmp_path / "out" / "checkpoints")] == [0]
    assert_finite_checkpoints(tmp_path / "out")


def test_weights_that_only_one_batch_broke_are_mended_by_going_back(make, inputs_for, tmp_path, monkeypatch) -> None:
    """And where no checkpoint looked at them, the batch that broke them is passed over with the one that showed it."""
    recipe = make(lr=1e-3, duration="8 steps", faults={"not_finite": "rollback"}, validation={"every_steps": 100})
    step, calls = Optimizers.step, iter(range(100))

    def breaking(self, share) -> None:
        step(self, share)
        if next(calls) == 4:
            next(iter(self.members[0].param_groups[0]["params"])).data.view(-1)[3] = torch.inf

    monkeypatch.setattr(Optimizers, "step", breaking)
    said = train(recipe, inputs_for(recipe), tmp_path / "out")
    assert any("back to step 0, and on without 2 batches" in text for text in said)
    assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / "out" / "model.safetensors").values())


def test_a_checkpoint_that_is_broken_already_ends_the_run_with_the_reason(
    make, inputs_for, poison, tmp_path, monkeypatch
) -> None:
    recipe = make(lr=1e-3, duration="8 steps", faults={"not_finite": "rollback"})
    restored = reading.restored

    def broken(path, model, optimizers, world):
        progress = restored(path, model, optimizers, world)
        next(model.parameters()).data.view(-1)[0] = torch.nan
        return progress

    monkeypatch.setattr(reading, "restored", broken)
    poison(torch.nan)
    said = stopped(recipe, inputs_for(recipe), tmp_path / "out")
    assert "are not finite in step-00000000, where the run went back to" in said


def test_a_checkpoint_whose_weights_gave_no_finite_loss_is_not_called_good(make, inputs_for, poison, tmp_path) -> None:
    """Weights may be finite and too large: no update was made from them."""
    poison(torch.nan, batches=range(1, 20))
    recipe = make(lr=1e-3, faults={"not_finite": "rollback", "most": 3}, exec_checkpoint_every=EACH)
    said = stopped(recipe, inputs_for(recipe), tmp_path / "out")
    assert "as many as train.faults.most allows" in said
    assert "step-00000001" not in said


def test_a_result_whose_validation_is_no_number_is_none(make, inputs_for, tmp_path, monkeypatch) -> None:
    recipe = make(lr=1e-3, duration="6 steps", exec_checkpoint_every=EACH)
    inputs, evaluate = inputs_for(recipe), World.evaluate

    def broken(self, *arguments):
        result = evaluate(self, *arguments)
        metrics = dict(result.metrics)
        return replace(result, metrics=metrics | {"loss": replace(metrics["loss"], value=torch.nan)})

    monkeypatch.setattr(World, "evaluate", broken)
    for _ in range(2):  # the same command again goes on, and comes to the same end
        said = stopped(recipe, inputs, tmp_path / "out")
        assert "the validation loss of the result, after step 6, is not finite" in said


class _Sharded(World):
    """One of two ranks: it has the second half of each tensor; the other one found nothing."""

    ranks = 2

    def gathered(self, value: Any) -> list[Any]:
        return [["first"], value]

    def local(self, tensors):
        return (tensor.view(-1)[tensor.numel() // 2 :] for tensor in tensors)


@pytest.mark.parametrize(("at", "value"), [(1, torch.nan), (3, torch.nan), (3, torch.inf), (2, -torch.inf)])
def test_each_rank_looks_at_its_part_and_all_give_one_answer(at, value) -> None:
    network = nn.Linear(4, 1, bias=True)
    network.weight.data.view(-1)[at] = value
    alone = SimpleNamespace(network=network, optimizers=SimpleNamespace(result_is_average=False), world=World())
    assert not_finite(alone) == ("weight",)
    ranked = SimpleNamespace(network=network, optimizers=alone.optimizers, world=_Sharded())
    assert not_finite(ranked) == ("first",) + (("weight",) if at >= 2 else ())
