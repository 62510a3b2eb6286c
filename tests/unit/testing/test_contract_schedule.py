"""Our schedules and a plug-in keep the contract; a schedule that breaks it is noticed."""

from __future__ import annotations

import math
import sys
import types
from itertools import count

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.updates.schedule import SCHEDULES
from trainwright.testing.contract_schedule import ScheduleContract


def rational(done, section):
    return 1 / (1 + 9 * done)


def rising(done, section):
    return 1 + done


def low(done, section):
    return 0.5


def dropping(done, section):
    return math.nan if done > 0.5 else 1.0


CALLS = count()


def counting(done, section):
    """Remembers how often it was asked."""
    return 1 / (1 + next(CALLS)) if done else 1.0


@pytest.fixture(autouse=True)
def _plugged(monkeypatch):
    rules = {rule.__name__: rule for rule in (rational, rising, low, dropping, counting)}
    monkeypatch.setitem(sys.modules, "plugged_schedules", types.SimpleNamespace(**rules))


class TestCosine(ScheduleContract):
    schedule = "cosine"


class TestLinear(ScheduleContract):
    schedule = "linear"
    keys = {"final_ratio": 0.0}  # noqa: RUF012  # as a plug-in's author would write it


class TestWsd(ScheduleContract):
    schedule = "wsd"
    keys = {"decay_fraction": 1.0}  # noqa: RUF012  # the whole run


class TestConstant(ScheduleContract):
    schedule = "constant"


class TestInverseSqrt(ScheduleContract):
    schedule = "inverse-sqrt"


class TestRestarts(ScheduleContract):
    schedule = "cosine-restarts"
    keys = {"cycles": 3, "cycle_growth": 1.5}  # noqa: RUF012  # as above


class TestPlugIn(ScheduleContract):
    schedule = "plugged_schedules:rational"


def test_every_schedule_of_ours_is_held_to_it() -> None:
    held = {each.schedule for each in ScheduleContract.__subclasses__() if each.__module__ == __name__}
    assert held >= set(SCHEDULES)


def broken(name: str) -> ScheduleContract:
    rule = type("Broken", (ScheduleContract,), {"schedule": f"plugged_schedules:{name}", "__module__": "elsewhere"})
    return rule()


def test_a_share_above_the_peak_or_none_at_all_is_noticed() -> None:
    with pytest.raises(AssertionError):
        broken("rising").test_every_share_is_one_of_the_peak()
    with pytest.raises(RecipeError, match=r"plugged_schedules:dropping gave no share of the peak rate \(seen nan"):
        broken("dropping").test_every_share_is_one_of_the_peak()


def test_a_jump_behind_the_warm_up_is_noticed() -> None:
    with pytest.raises(AssertionError):
        broken("low").test_it_begins_at_the_peak()
    with pytest.raises(AssertionError):
        broken("low").test_the_shortest_runs_have_a_rate(2, 0)


def test_what_is_remembered_is_noticed() -> None:
    with pytest.raises(AssertionError):
        broken("counting").test_it_depends_on_what_is_done_alone()
