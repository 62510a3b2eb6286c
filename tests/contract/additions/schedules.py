"""A schedule that the project does not have."""

from __future__ import annotations

from trainwright.spec.sections.updates.schedule import ScheduleSection


def square_root(done: float, section: ScheduleSection) -> float:
    """Falls to zero, fast at first."""
    return 1 - done**0.5
