"""A schedule that the project does not have."""

from __future__ import annotations

from trainwright.spec.sections.train import ScheduleSection


def square_root(done: float, section: ScheduleSection) -> float:
    """Falls fast at first."""
    return 1 - (1 - section.final_ratio) * done**0.5
