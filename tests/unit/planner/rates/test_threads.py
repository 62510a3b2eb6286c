"""Other threads than cores: fewer are slower in proportion, with a range from no loss at all on; more may lose."""

from __future__ import annotations

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.spec.plan import Plan
from trainwright.testing.machine import fake_facts, fake_machine


@pytest.fixture
def planned(tmp_path):
    def plan(threads: int | str, **keys: object) -> Plan:
        recipe = planned_recipe(tmp_path, f"train.exec.threads={threads}", "train.precision=fp32")
        return plan_of(recipe, fake_machine(**keys))

    return plan


@pytest.mark.parametrize(("threads", "slower"), [(1, 4.0), (2, 2.0), (3, 4 / 3), (8, 1.0)])
def test_a_step_takes_longer_in_proportion(planned, threads, slower) -> None:
    assert fake_facts().cores == 4
    every, fewer = planned("auto").estimate, planned(threads).estimate
    assert fewer.phases.total_s == pytest.approx(slower * every.phases.total_s)
    assert fewer.seconds.low <= every.seconds.mid * 1.001 and fewer.seconds.high >= slower * every.seconds.high * 0.999


def test_more_threads_than_cores_widen_the_range_by_as_much_as_they_may_lose(planned) -> None:
    every, more = planned("auto").estimate, planned(8).estimate
    assert more.seconds.mid == pytest.approx(every.seconds.mid)
    assert more.seconds.high >= 2 * every.seconds.mid * 0.999 and more.seconds.high > 1.1 * every.seconds.high
    (entry,) = (entry for entry in more.assumptions if entry.name == "threads")
    assert entry.unit == "" and entry.source.startswith("more than the 4 cores")


def test_the_plan_says_what_it_takes_threads_for(planned) -> None:
    assert all(entry.name != "threads" for entry in planned("auto").estimate.assumptions)
    assert planned("auto").estimate == planned(4).estimate
    (entry,) = (entry for entry in planned(1).estimate.assumptions if entry.name == "threads")
    assert (entry.value, entry.origin) == (1.0, "recipe") and entry.source.startswith("of 4 cores")
    assert "in proportion" in entry.source
