"""Learning rates at the places where they are known by definition."""

from __future__ import annotations

import pytest

from trainwright.spec.recipe import ScheduleSection
from trainwright.stages.train.schedule import SCHEDULES, rate


def rates(name: str, **keys) -> list[float]:
    section = ScheduleSection(name=name, **keys)
    return [rate(step, steps=110, warmup_steps=10, section=section) for step in range(111)]


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


def test_the_recipe_offers_exactly_what_is_here() -> None:
    offered = ScheduleSection.model_fields["name"].annotation.__args__
    assert sorted(offered) == sorted(SCHEDULES)
