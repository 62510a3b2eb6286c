"""Learning rate as a share of its peak: a pure function of the step.

A schedule is a function of how much of the run behind the warm-up is done, in [0, 1), and of the recipe's section; it
gives the share of the peak rate. From outside the project it is ``package.module:function`` in the recipe;
``testing.contract_schedule`` says what it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trainwright.core.errors import RecipeError
from trainwright.core.registry import is_reference
from trainwright.spec.sections.updates.schedule import (
    SCHEDULE,
    DecaySection,
    InverseSqrtSection,
    RestartsSection,
    ScheduleSection,
    WsdSection,
)

ROUNDING = 1e-9
"""Of a cycle's place in the run: a step that is the first of a cosine has its peak."""
Schedule = Callable[[float, ScheduleSection], float]


def cosine(done: float, section: DecaySection) -> float:
    """Half a cosine from 1 to ``final_ratio``."""
    return section.final_ratio + (1 - section.final_ratio) * 0.5 * (1 + math.cos(math.pi * done))


def linear(done: float, section: DecaySection) -> float:
    """Returns a line from 1 to ``final_ratio``."""
    return 1 - (1 - section.final_ratio) * done


def wsd(done: float, section: WsdSection) -> float:
    """Stable, then linear decay over the last ``decay_fraction`` (Hu et al., 2024, MiniCPM)."""
    return linear(max(0.0, 1 - (1 - done) / section.decay_fraction), section)


def constant(done: float, section: ScheduleSection) -> float:
    """Returns the peak all the way."""
    return 1.0


def inverse_sqrt(done: float, section: InverseSqrtSection) -> float:
    """Inverse square root (Vaswani et al., 2017, section 5.3).

    Theirs, ``sqrt(warmup / step)``, is this one with a ``timescale`` of ``warmup / (steps - warmup)``.
    """
    return (1 + done / section.timescale) ** -0.5


def cosine_restarts(done: float, section: RestartsSection) -> float:
    """Half a cosine from 1 to ``final_ratio``, again and again (Loshchilov and Hutter, 2017, SGDR)."""
    lengths = [section.cycle_growth**cycle for cycle in range(section.cycles)]
    left = done * math.fsum(lengths)
    for length in lengths[:-1]:
        if left < length - ROUNDING:
            return cosine(max(0.0, left) / length, section)
        left -= length
    return cosine(min(1.0, max(0.0, left) / lengths[-1]), section)


def load_schedule(section: ScheduleSection) -> Schedule:
    """Returns the schedule that a recipe names.

    Raises:
        RecipeError: it cannot be imported, or is none; a plug-in's raises one too where it gives no finite number.
    """
    schedule: Schedule = SCHEDULE.load(section.name)
    return _blamed(section.name, schedule) if is_reference(section.name) else schedule


def _blamed(name: str, schedule: Schedule) -> Schedule:
    """Returns a plug-in's schedule whose wrong answers are one line that names it."""

    def share(done: float, section: ScheduleSection) -> float:
        value: object = schedule(done, section)
        if isinstance(value, (int, float)) and math.isfinite(value):
            return value
        raise RecipeError(
            "the plug-in {name} gave no share of the peak rate",
            where="train.schedule.name",
            seen=repr(value),
            expected="a finite number",
            name=name,
        )

    return share


def rate(schedule: Schedule, step: int, *, steps: int, warmup_steps: int, section: ScheduleSection) -> float:
    """Share of the peak learning rate at a step (counted from 0) of a run of ``steps``."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return schedule((step - warmup_steps) / max(1, steps - warmup_steps), section)
