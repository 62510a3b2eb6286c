"""Phases of a profiled step are the mean over its steps."""

from __future__ import annotations

from trainwright.planner.evidence.profile import RankProfile, Stretch
from trainwright.spec.measures import PhaseTimes


def test_phases_are_the_mean_of_a_step() -> None:
    steps = (
        (Stretch(phase="forward", begin_s=0, end_s=2), Stretch(phase="update", begin_s=2, end_s=3)),
        (Stretch(phase="forward", begin_s=3, end_s=4), Stretch(phase="other", begin_s=4, end_s=6)),
    )
    rank = RankProfile(rank=0, host="h", began_unix_s=0.0, steps=steps, operators=(), files={})
    assert rank.phases == PhaseTimes(forward=1.5, update=0.5, other=1.0)
    assert rank.phases.total_s == 6 / 2
