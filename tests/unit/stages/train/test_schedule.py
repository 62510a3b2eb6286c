"""Learning rates at the places where they are known by definition."""

from __future__ import annotations

import sys
import types

import pytest

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
