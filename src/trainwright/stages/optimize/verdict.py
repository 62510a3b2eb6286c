"""Whether a technique is kept, and why: decided from what was measured alone."""

from __future__ import annotations

import math
from typing import Literal

from trainwright.core.units import format_bytes, format_seconds
from trainwright.planner.evidence.ladder import Measurement
from trainwright.spec.plan import Interval

SCARCE = 0.9
"""Of the memory that is there: a configuration that takes more is short of it."""
SMALL_SHARE = 0.01
"""Of an update: phases that change by less are not named."""


def loss_difference(before: Measurement, with_it: Measurement) -> float:
    """Returns the largest relative difference of an update's loss; infinity where one is not finite."""
    pairs = zip(before.losses, with_it.losses, strict=True)
    differences = [abs(other / one - 1) if math.isfinite(one) and one else math.inf for one, other in pairs]
    return max((each if math.isfinite(each) else math.inf for each in differences), default=0.0)


def verdict(
    before: Measurement,
    with_it: Measurement,
    gain: Interval,
    *,
    difference: float,
    tolerance: float,
    run_steps: int,
    of_memory: bool,
    available_bytes: float,
) -> tuple[bool, str]:
    """Returns whether a technique is kept, and a sentence that says why.

    Args:
        before: without it.
        with_it: with it.
        gain: how many times as fast it is.
        difference: the largest relative one of the loss.
        tolerance: the largest that it may cause.
        run_steps: updates of the whole run, over which what it takes to start has to be paid back.
        of_memory: whether it is a means against too little memory.
        available_bytes: memory that is there.
    """
    if difference > tolerance:
        return False, f"the loss differs by {difference:.1e}, more than the {tolerance:.0e} that rounding may cause"
    if of_memory and before.memory_bytes > SCARCE * available_bytes and with_it.memory_bytes < before.memory_bytes:
        return True, f"memory is short: {_memory(before, with_it)} of {format_bytes(available_bytes)}"
    if gain.low <= 1:
        what = "slower" if gain.high < 1 else f"no difference that {len(with_it.step_s)} updates show"
        if not of_memory:
            return False, what
        return False, f"{what}; {_memory(before, with_it)}, and {format_bytes(available_bytes)} are there"
    pause_s, saved_s = with_it.start_s - before.start_s, before.median_s - with_it.median_s
    if pause_s > saved_s * run_steps > 0:
        needed = math.ceil(pause_s / saved_s)
        return False, f"{format_seconds(pause_s)} of start-up are paid back after {needed:,} updates of {run_steps:,}"
    return True, where(before, with_it)


def better(
    gain: Interval, *, updates: int, difference: float, tolerance: float
) -> tuple[Literal["tuned", "given"], str]:
    """Returns which recipe is taken, and why: the given one stays where the other is slower, or learns otherwise.

    Args:
        gain: how many times as fast what was decided is as the recipe as given.
        updates: that were timed.
        difference: the largest relative one of the loss.
        tolerance: the largest that rounding may cause.
    """
    if difference > tolerance:
        what = (
            f"the loss of what was decided differs by {difference:.1e}, more than the {tolerance:.0e} of its techniques"
        )
        return "given", f"{what}: the recipe stays as it was given"
    ratio = f"{gain.mid:.2f}x as fast ({gain.low:.2f} to {gain.high:.2f})"
    if gain.low > 1:
        return "tuned", f"what was decided is {ratio}"
    noise = "" if gain.high < 1 else f", no difference that {updates} updates show"
    if gain.mid < 1:
        return "given", f"what was decided is {ratio}{noise}: the recipe stays as it was given"
    return "tuned", f"what was decided is {ratio}{noise}"


def where(before: Measurement, with_it: Measurement) -> str:
    """Returns the phases of an update that became shorter or longer, the largest change first."""
    one, other = before.phases.as_dict(), with_it.phases.as_dict()
    changes = sorted(one, key=lambda name: -abs(other[name] - one[name]))
    named = [name for name in changes if abs(other[name] - one[name]) > SMALL_SHARE * before.median_s]
    parts = [
        f"{name.replace('_', ' ')} {format_seconds(one[name])} to {format_seconds(other[name])}" for name in named[:3]
    ]
    return ", ".join(parts) or "no phase stands out"


def _memory(before: Measurement, with_it: Measurement) -> str:
    return f"peak memory {format_bytes(before.memory_bytes)} to {format_bytes(with_it.memory_bytes)}"
