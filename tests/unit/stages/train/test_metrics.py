"""Means over updates, and event files that a resumed run can go on with."""

from __future__ import annotations

import json
import math
import sys

import pytest
import torch

from trainwright.artifact.events import Events, read_events
from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import Metrics, forget_after, open_board
from trainwright.stages.train.step import Update


def update(loss_sum: float, targets: int, norm: float = 1.0) -> Update:
    return Update(loss_sum=torch.tensor(loss_sum), targets=torch.tensor(targets), grad_norm=torch.tensor(norm))


def test_the_mean_is_over_targets_not_over_updates(tmp_path) -> None:
    with Events(tmp_path / "e.jsonl", run="r") as events:
        metrics = Metrics(events, None, steps=10, batch_tokens=100, flops_per_token=3.0, peak_flops_per_s=600.0)
        metrics.add(update(10.0, 10))
        metrics.add(update(90.0, 30))
        assert metrics.report(2, 0.1, PhaseTimes(forward=3.0, update=1.0, evaluate=50.0)) == pytest.approx(2.5)
    values = {event.name: event.value for event in read_events(tmp_path / "e.jsonl")}
    assert values["train/tokens_per_s"] == pytest.approx(50.0)
    assert values["train/mfu"] == pytest.approx(0.25)
    assert values["train/eta_s"] == pytest.approx(16.0)
    assert values["forward"] == pytest.approx(1.5)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (1.0, math.inf), (1.0, math.nan)])
def test_what_is_not_finite_is_returned(tmp_path, loss, norm) -> None:
    with Events(None, run="r") as events:
        metrics = Metrics(events, None, steps=1, batch_tokens=1, flops_per_token=1.0, peak_flops_per_s=None)
        metrics.add(update(loss, 1, norm))
        assert not math.isfinite(metrics.report(1, 0.1, PhaseTimes(forward=1.0)))


def test_later_and_torn_events_are_forgotten(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    with Events(path, run="r") as events:
        for step in (1, 2, 3):
            events.metric("train/loss", float(step), step=step)
        events.message("hello")
    with path.open("a") as stream:
        stream.write('{"run": "r", "ste')
    forget_after(path, 2)
    assert [json.loads(line).get("step") for line in path.read_text().splitlines()] == [1, 2, None]
    forget_after(tmp_path / "absent.jsonl", 2)


def test_tensorboard_files_hold_the_metrics(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Events(None, run="r") as events:
        board = open_board(tmp_path / "board", wanted=True, first_step=0, events=events)
        metrics = Metrics(events, board, steps=1, batch_tokens=1, flops_per_token=1.0, peak_flops_per_s=None)
        metrics.metric("train/loss", 1.25, step=3)
        board.close()
    reader = EventAccumulator(str(tmp_path / "board"))
    reader.Reload()
    assert [(point.step, point.value) for point in reader.Scalars("train/loss")] == [(3, 1.25)]


def test_without_tensorboard_the_pip_line_is_said_once_and_training_goes_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr("trainwright.stages.train.metrics.find_spec", lambda name: None)
    said: list[str] = []
    with Events(None, run="r", listeners=(lambda event: said.append(event.text),)) as events:
        assert open_board(tmp_path, wanted=True, first_step=0, events=events) is None
        assert open_board(tmp_path, wanted=False, first_step=0, events=events) is None
    assert len(said) == 1 and "pip install 'trainwright[" in said[0]
