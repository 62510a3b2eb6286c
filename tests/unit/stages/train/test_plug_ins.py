"""A family, a task, an optimizer and a schedule from outside the project, in one recipe: it trains and resumes."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.model.tasks.next_token import NextToken
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversed(NextToken):
    """Predicts each token from those behind it."""

    def inputs(self, network, batch):
        return NextToken.inputs(self, network, {"tokens": batch["tokens"].flip(1)})


def reversed_text(recipe, dataset):
    return Reversed(sequence_tokens=recipe.train.sequence_tokens)


def momentum(network, section):
    return [torch.optim.SGD(network.parameters(), lr=section.lr, momentum=0.9)]


def staircase(done, section):
    return 1.0 if done < 0.5 else 0.25


@pytest.fixture
def recipe(make_recipe, monkeypatch) -> Recipe:
    kind = TaskKind(make="my_rules:reversed_text")
    module = types.SimpleNamespace(REVERSED=kind, reversed_text=reversed_text, momentum=momentum, staircase=staircase)
    monkeypatch.setitem(sys.modules, "my_rules", module)
    made = make_recipe(
        duration="40 steps",
        optimizer={"name": "my_rules:momentum", "lr": 0.5},
        schedule={"name": "my_rules:staircase", "warmup": "2 steps"},
        exec_checkpoint_every=1e-9,
        exec_log_every_steps=1,
    )
    written = made.model_dump(mode="json", by_alias=True)
    written["model"]["family"] = "fixtures.plugged_family:FAMILY"
    written["task"] = {"name": "my_rules:REVERSED"}
    return Recipe.model_validate(written)


def test_all_of_them_train(recipe, inputs_for, train, tmp_path) -> None:
    train(recipe, inputs_for(recipe), tmp_path / "out")
    events = list(read_events(tmp_path / "out" / "events.jsonl"))
    losses = [event.value for event in events if event.name == "train/loss"]
    assert losses[-1] < losses[0] - 1.0
    rates = [event.value for event in events if event.name == "train/lr"]
    assert rates[2:4] == [0.5, 0.5] and rates[-1] == 0.125
    assert json.loads((tmp_path / "out" / "model.json").read_text())["family"] == "fixtures.plugged_family:FAMILY"


def test_a_killed_run_goes_on_to_the_same_bits(recipe, inputs_for, train, tmp_path) -> None:
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "whole")

    def kill(event) -> None:
        if event.kind == "progress" and event.value == 25:
            raise SystemExit(137)

    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "parts", (kill,))
    train(recipe, inputs, tmp_path / "parts")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
