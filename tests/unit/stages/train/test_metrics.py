"""Means over updates, and event files that a resumed run can go on with."""

from __future__ import annotations

import math

import pytest
import torch

from trainwright.artifact.events import Events, read_events
from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import TrainingMetrics
from trainwright.stages.train.step import Update


def make_metrics(events: Events, board, **rates) -> TrainingMetrics:
    return TrainingMetrics(events, board, unit="nats/token", **rates)


def update(loss_sum: float, targets: int, norm: float = 1.0) -> Update:
    return Update(loss_sum=torch.tensor(loss_sum), targets=torch.tensor(targets), grad_norm=torch.tensor(norm))


def test_the_mean_is_over_targets_not_over_updates(tmp_path) -> None:
    with Events(tmp_path / "e.jsonl", run="r") as events:
        metrics = TrainingMetrics(events, None, unit="nats/token", flops_per_token=3.0, peak_flops_per_s=600.0)
        metrics.add(update(10.0, 10), 50)
        metrics.add(update(90.0, 30), 150)
        rates = {"train/lr": 0.1, "train/muon_lr": 0.2}
        times = PhaseTimes(forward=3.0, update=1.0, evaluate=50.0)
        assert metrics.report(2, rates, times, tokens=750) == pytest.approx(2.5)
    values = {event.name: event.value for event in read_events(tmp_path / "e.jsonl")}
    assert values["train/tokens_per_s"] == pytest.approx(50.0), "of updates of different sizes"
    assert values["train/tokens"] == 750
    assert (values["train/lr"], values["train/muon_lr"]) == (0.1, 0.2)
    assert values["train/mfu"] == pytest.approx(0.25)
    assert values["train/steps_per_s"] == pytest.approx(0.5)
    assert values["forward"] == pytest.approx(1.5)


def test_an_update_that_is_left_out_counts_in_speed_and_not_in_the_loss(tmp_path) -> None:
    left_out = update(math.nan, 10)
    with Events(tmp_path / "e.jsonl", run="r") as events:
        metrics = TrainingMetrics(events, None, unit="nats/token", flops_per_token=3.0, peak_flops_per_s=600.0)
        metrics.add(update(10.0, 10), 50)
        metrics.add(left_out, 50)
        metrics.leave_out(left_out)
        assert metrics.report(2, {}, PhaseTimes(forward=4.0), tokens=100) == pytest.approx(1.0)
    values = {event.name: event.value for event in read_events(tmp_path / "e.jsonl")}
    assert values["train/steps_per_s"] == pytest.approx(0.5)
    assert values["train/tokens_per_s"] == pytest.approx(25.0)
    assert values["forward"] == pytest.approx(2.0)


def test_images_are_counted_as_images(tmp_path) -> None:
    with Events(tmp_path / "e.jsonl", run="r") as events:
        metrics = TrainingMetrics(
            events,
            None,
            unit="nats/image",
            counted=("images", 17),
            flops_per_token=3.0,
            peak_flops_per_s=600.0,
        )
        metrics.add(update(10.0, 10), 170)
        metrics.report(3, {}, PhaseTimes(forward=2.0), tokens=510)
    values = {event.name: (event.value, event.unit) for event in read_events(tmp_path / "e.jsonl")}
    assert values["train/images_per_s"] == (5.0, "images/s")
    assert values["train/images"] == (30.0, "images")
    assert values["train/mfu"][0] == pytest.approx(85 * 3 / 600), "of tokens, as operations are counted"


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (1.0, math.inf), (1.0, math.nan)])
def test_what_is_not_finite_is_returned(tmp_path, loss, norm) -> None:
    with Events(None, run="r") as events:
        metrics = TrainingMetrics(events, None, unit="nats/token", flops_per_token=1.0, peak_flops_per_s=None)
        metrics.add(update(loss, 1, norm), 1)
        assert not math.isfinite(metrics.report(1, {"train/lr": 0.1}, PhaseTimes(forward=1.0), tokens=1))


def test_a_beaten_peak_is_said_once_and_never_a_share_above_one(tmp_path) -> None:
    with Events(tmp_path / "e.jsonl", run="r") as events:
        metrics = make_metrics(events, None, flops_per_token=1.0, peak_flops_per_s=10.0)
        for step in (1, 2):
            metrics.add(update(1.0, 10, 1.0), 100)
            metrics.report(step, {}, PhaseTimes(forward=1.0), tokens=100 * step)
    told = list(read_events(tmp_path / "e.jsonl"))
    assert "train/mfu" not in {event.name for event in told}
    assert len([event for event in told if "doctor --fresh" in event.text]) == 1
