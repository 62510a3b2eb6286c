"""Learning rates at the places where they are known by definition."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.schedule import SCHEDULES, ScheduleSection
from trainwright.stages.train.schedule import load_schedule, rate


def rates(name: str, **keys) -> list[float]:
    section = TrainSection(schedule={"name": name, **keys}).schedule
    schedule = load_schedule(section)
    return [rate(schedule, step, steps=110, warmup_steps=10, section=section) for step in range(111)]


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_warms_up_to_the_peak_and_never_above(name) -> None:
    found = rates(name)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(found) == found[10] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["cosine", "linear", "wsd"])
def test_ends_at_the_final_ratio(name) -> None:
    assert rates(name, final_ratio=0.25)[110] == pytest.approx(0.25)


def test_half_way_and_flat_parts() -> None:
    assert rates("cosine", final_ratio=0)[60] == pytest.approx(0.5)
    assert rates("linear", final_ratio=0)[60] == pytest.approx(0.5)
    stable = rates("wsd", decay_fraction=0.2, final_ratio=0)
    assert stable[10:91] == pytest.approx([1.0] * 81)
    assert stable[100] == pytest.approx(0.5)
    assert set(rates("constant")[10:]) == {1.0}


def test_the_inverse_square_root_is_that_of_the_transformer() -> None:
    """Vaswani et al., 2017, section 5.3: sqrt(warmup / step) of the peak, with 10 steps of warm-up of 110."""
    found = rates("inverse-sqrt", timescale=0.1)
    assert found[10:] == pytest.approx([(10 / step) ** 0.5 for step in range(10, 111)])


@pytest.mark.parametrize(("first", "growth", "cycles"), [(10, 1, 3), (10, 2, 3), (7, 3, 2), (12, 1, 1)])
def test_restarts_are_those_of_torch(first, growth, cycles) -> None:
    steps = sum(first * growth**cycle for cycle in range(cycles))
    keys = {"name": "cosine-restarts", "cycles": cycles, "cycle_growth": growth, "final_ratio": 0.1}
    section = TrainSection(schedule=keys).schedule
    schedule = load_schedule(section)
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = CosineAnnealingWarmRestarts(optimizer, T_0=first, T_mult=growth, eta_min=0.1)
    for step in range(steps):
        share = rate(schedule, step, steps=steps, warmup_steps=0, section=section)
        assert share == pytest.approx(optimizer.param_groups[0]["lr"]), step
        optimizer.step()
        theirs.step()


def root(done: float, section: ScheduleSection) -> float:
    """A plug-in: the rate falls with the square root of what is left."""
    return (1 - done) ** 0.5


def test_a_plug_in_is_a_function_of_what_is_done(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "newcomer", sys.modules[__name__])
    assert rates("newcomer:root")[60] == pytest.approx(0.5**0.5)


def test_a_plug_in_that_gives_no_share_is_one_line_under_its_key(monkeypatch) -> None:
    module = types.ModuleType("newcomer")
    module.rule = lambda done, section: None
    monkeypatch.setitem(sys.modules, "newcomer", module)
    section = ScheduleSection(name="newcomer:rule")
    with pytest.raises(
        RecipeError, match=r"train\.schedule\.name: the plug-in newcomer:rule gave no share .*seen None"
    ):
        load_schedule(section)(0.5, section)
