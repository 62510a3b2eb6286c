"""The contract of a schedule: what every function in ``train.schedule.name`` promises, as tests to inherit.

::

    class TestMine(ScheduleContract):
        schedule = "my_package.rules:square_root"
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.schedule import ScheduleSection
from trainwright.stages.train.schedule import load_schedule, rate

PARTS = 1000
ROUNDING = 1e-9


class ScheduleContract:
    """A subclass names the schedule, and other keys of its section where it needs them."""

    schedule: ClassVar[str]
    """A name of ours, or ``package.module:function``."""
    keys: ClassVar[dict[str, Any]] = {}

    def section(self) -> ScheduleSection:
        """Returns the recipe's section."""
        return TrainSection.model_validate({"schedule": {"name": self.schedule} | self.keys}).schedule

    def shares(self, done: list[float]) -> list[float]:
        """Returns the share of the peak rate at each of these places of the run, the schedule loaded anew."""
        section = self.section()
        schedule = load_schedule(section)
        return [schedule(each, section) for each in done]

    def test_it_begins_at_the_peak(self) -> None:
        """There the warm-up ends: a jump behind it would be a shock that nobody asked for."""
        assert self.shares([0.0]) == pytest.approx([1.0], abs=ROUNDING)

    def test_every_share_is_one_of_the_peak(self) -> None:
        """From the end of the warm-up to that of the run it is a number from 0 to 1: the peak is the recipe's."""
        for share in self.shares([part / PARTS for part in range(PARTS)]):
            assert isinstance(share, (int, float))
            assert -ROUNDING <= share <= 1 + ROUNDING

    def test_every_key_is_written_down_and_read_back(self) -> None:
        """None is left out of what the address is made of."""
        written = TrainSection(schedule=self.section()).model_dump(mode="json")
        assert written["schedule"].keys() == type(self.section()).model_fields.keys()
        assert TrainSection.model_validate(written).schedule == self.section()

    def test_it_depends_on_what_is_done_alone(self) -> None:
        """Nothing is remembered from call to call, so that a run that goes on anywhere has the same rates."""
        done = [part / PARTS for part in range(PARTS)]
        whole = self.shares(done)
        assert self.shares(done[::-1]) == whole[::-1]
        assert self.shares(done[PARTS // 2 :]) == whole[PARTS // 2 :]
        assert self.shares([each for each in done for _ in range(2)])[::2] == whole

    @pytest.mark.parametrize(("steps", "warmup_steps"), [(1, 0), (1, 1), (2, 0), (3, 1), (3, 3)])
    def test_the_shortest_runs_have_a_rate(self, steps: int, warmup_steps: int) -> None:
        """One update is a run too, and so is one that is warm-up to its end."""
        section = self.section()
        schedule = load_schedule(section)
        rates = [rate(schedule, step, steps=steps, warmup_steps=warmup_steps, section=section) for step in range(steps)]
        assert all(math.isfinite(each) for each in rates)
        assert max(rates) == pytest.approx(1.0, abs=ROUNDING)
