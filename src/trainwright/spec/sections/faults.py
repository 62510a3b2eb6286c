"""``train.faults``: what becomes of an update whose numbers cannot be right."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.spec.sections.base import Positive, Section

Action = Literal["ignore", "stop", "skip", "rollback"]
"""``skip`` leaves the update out; ``rollback`` goes back to a checkpoint and on without the batches that led here."""


class FaultsSection(Section):
    """What is done with an update that is not finite, or far above those before it."""

    not_finite: Literal["stop", "skip", "rollback"] = Field(
        "stop", description="where loss or gradient is NaN or infinite: stop, leave the update out, or go back"
    )
    spike: Action = Field("ignore", description="the same for a loss or gradient norm far above those before it")
    spike_sigma: float = Field(6.0, gt=0, description="standard deviations above their mean that make a spike")
    window: int = Field(128, ge=8, description="updates before it that a spike is compared with")
    rollback_steps: Positive = Field(1, description="batches passed over by a rollback, the faulty one the last")
    most: Positive = Field(100, description="updates left out or rolled back in a run, beyond which it stops")

    @property
    def watches(self) -> bool:
        """Returns whether spikes are looked for."""
        return self.spike != "ignore"

    @property
    def goes_back(self) -> bool:
        """Returns whether a fault may lead back to a checkpoint."""
        return "rollback" in (self.not_finite, self.spike)
