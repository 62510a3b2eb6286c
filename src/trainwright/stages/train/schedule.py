"""Learning rate as a share of its peak: a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

from trainwright.spec.recipe import ScheduleSection


def _cosine(done: float, section: ScheduleSection) -> float:
    return section.final_ratio + (1 - section.final_ratio) * 0.5 * (1 + math.cos(math.pi * done))


def _linear(done: float, section: ScheduleSection) -> float:
    return 1 - (1 - section.final_ratio) * done


def _wsd(done: float, section: ScheduleSection) -> float:
    """Stable, then linear decay over the last ``decay_fraction`` (Hu et al., 2024, MiniCPM)."""
    return _linear(max(0.0, 1 - (1 - done) / section.decay_fraction), section)


SCHEDULES: dict[str, Callable[[float, ScheduleSection], float]] = {
    "cosine": _cosine,
    "linear": _linear,
    "wsd": _wsd,
    "constant": lambda done, section: 1.0,
}


def rate(step: int, *, steps: int, warmup_steps: int, section: ScheduleSection) -> float:
    """Share of the peak learning rate at a step (counted from 0) of a run of ``steps``."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, steps - warmup_steps)
    return SCHEDULES[section.name](done, section)
