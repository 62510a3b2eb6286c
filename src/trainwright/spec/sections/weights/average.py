"""``train.ema``: an exponential moving average of the weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.spec.sections.base import DurationText, Positive, Section

Early = Literal["constant", "unbiased", "ramp"]
"""The share that the average keeps of itself when it is young: always ``decay``; so much that the weights it began with
count for nothing; or ``(1 + n) / (10 + n)`` at its n-th update, until that is more than ``decay``."""


class EmaSection(Section):
    """An average of the weights over updates, and what it is used for."""

    decay: float = Field(0.999, gt=0, lt=1, description="share that the average keeps of itself, each time it moves")
    every_steps: Positive = Field(1, description="steps between two moves of the average")
    start: DurationText = Field("0 steps", description="length of the run before it; then it begins with the weights")
    early: Early = Field(
        "constant", description="decay of a young average: constant; unbiased: a true mean; ramp: (1 + n) / (10 + n)"
    )
    use: bool = Field(True, description="validation measures the averaged weights, and they are the result")
