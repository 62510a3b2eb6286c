"""Which rank is the slowest, and by how much."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from trainwright.artifact.events import Events
from trainwright.spec.event import Event
from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import TrainingMetrics
from trainwright.stages.train.ranks.stragglers import Stragglers, slowest


@pytest.mark.parametrize(
    ("busy_s", "rank", "spread"),
    [([1.0, 1.0], 0, 1.0), ([1.0, 3.0], 1, 3.0), ([2.0, 1.0, 1.0, 1.1], 0, 2.0), ([1.0, 1.2, 1.1], 1, 1.2 / 1.1)],
)
def test_the_slowest_is_held_against_the_median(busy_s, rank, spread) -> None:
    assert slowest(busy_s) == (rank, pytest.approx(spread))


def test_busy_seconds_are_heard_one_report_later(tmp_path) -> None:
    told: list[Event] = []
    metrics = TrainingMetrics(
        Events(None, run="r", listeners=(told.append,)),
        None,
        unit="nats/token",
        flops_per_token=1.0,
        peak_flops_per_s=None,
    )
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        stragglers = Stragglers()
        for step in (2, 4, 6):
            stragglers.compare(step, PhaseTimes(forward=1.0, communicate=5.0, evaluate=9.0), metrics)
        stragglers.close()
    finally:
        dist.destroy_process_group()
    assert [(event.name, event.value, event.step) for event in told] == [
        ("train/rank_spread", 0.0, 4),
        ("train/slowest_rank", 0, 4),
    ]


def test_the_slowest_rank_is_a_metric_and_no_message(tmp_path, monkeypatch) -> None:
    """Three ranks of which the last computes three times as long as the others, as the first one sees them."""
    told: list[Event] = []
    metrics = TrainingMetrics(
        Events(None, run="r", listeners=(told.append,)),
        None,
        unit="nats/token",
        flops_per_token=1.0,
        peak_flops_per_s=None,
    )

    def gather(into, mine, *, async_op):
        assert async_op, "nobody waits"
        for place, factor in zip(into, (1, 1, 3), strict=True):
            place.copy_(mine * factor)

    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(dist, "all_gather", gather)
    stragglers = Stragglers()
    for step in range(2, 22, 2):
        stragglers.compare(step, PhaseTimes(forward=4.0), metrics)
    values = {(event.name, event.value) for event in told}
    assert values == {("train/rank_spread", 2.0), ("train/slowest_rank", 2)}
    assert {event.kind for event in told} == {"metric"}, "`Watch` names who falls behind, by `train.exec.slow_factor`"
