"""The program that measures, on a training of a second: its losses are those of the training itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from trainwright.artifact.events import Events, read_events
from trainwright.artifact.stage import Context
from trainwright.core.records import from_json
from trainwright.planner.evidence.ladder import Measurement
from trainwright.stages.optimize import measure
from trainwright.stages.train import run as train
from trainwright.testing.artifacts import make_dataset, make_plan

STEPS = 6


@pytest.fixture
def request_of(tmp_path, make_recipe):
    """What the program is asked, and the training that it is about."""
    torch.set_num_threads(1)
    texts = [f"word {number} and another {number * 7 % 50}" for number in range(400)]
    dataset = make_dataset(tmp_path / "data", {"train": texts})
    recipe = make_recipe(
        duration=f"{STEPS} steps",
        precision="fp32",
        batch_tokens=128,
        schedule={"name": "linear", "warmup": "2 steps"},
        exec={"compile": False, "tensorboard": False, "checkpoint_every": 0, "log_every_steps": 1, "micro_batch": 2},
    )
    vocabulary = json.loads((dataset.path / "dataset.json").read_text())["vocabulary"]
    plan = make_plan(tmp_path / "plan", recipe, vocabulary=vocabulary, steps=STEPS, micro_batch=2)
    document = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
    inputs = {"plan": plan, "dataset": dataset}
    asked = {"recipe": document, "inputs": {role: str(each.path) for role, each in inputs.items()}}

    def make(*, warmup_steps: int, steps: int) -> measure.MeasureRequest:
        return from_json(
            measure.MeasureRequest, asked | {"warmup_steps": warmup_steps, "steps": steps}, where="request"
        )

    return make, recipe, inputs


def said(capsys) -> list:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_its_updates_are_those_of_the_training(request_of, tmp_path, capsys) -> None:
    make, recipe, inputs = request_of
    measure.main(make(warmup_steps=2, steps=STEPS - 2))
    *done, document = said(capsys)
    assert done == list(range(1, STEPS + 1))
    found = from_json(Measurement, document, where="printed")
    out = tmp_path / "out"
    out.mkdir()
    with Events(None, run="tiny") as events:
        train(Context(recipe=recipe, inputs=inputs, out=out, root=tmp_path, events=events))
    losses = [event.value for event in read_events(out / "events.jsonl") if event.name == "train/loss"]
    assert found.losses == pytest.approx(losses[2:], rel=1e-6)
    assert len(found.step_s) == STEPS - 2 and min(found.step_s) > 0
    assert found.step_tokens == 128
    assert found.memory_bytes > 4 * 2 * 32 * 32
    assert found.phases.total_s == pytest.approx(sum(found.step_s) / (STEPS - 2), rel=0.5)
    assert found.phases.update > 0 and found.phases.evaluate == found.phases.checkpoint == 0


def test_a_run_that_is_shorter_than_its_measurement_is_measured_all_the_same(request_of, capsys) -> None:
    make, _, _ = request_of
    measure.main(make(warmup_steps=1, steps=STEPS + 2))
    assert len(said(capsys)[-1]["step_s"]) == STEPS + 2


def test_it_is_the_process_that_asked_that_it_ends_with(tmp_path) -> None:
    """One that is not its parent is gone, or was never there: it does not even read its request."""
    program = [sys.executable, "-m", measure.__name__, "1" if os.getpid() != 1 else "2"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.wait(timeout=60) == 1, "while nobody writes a request"
        assert child.stderr.read() == ""
