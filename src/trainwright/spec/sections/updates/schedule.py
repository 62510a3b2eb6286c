"""The keys of ``train.schedule``: the learning rate over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import DurationText, Section

SCHEDULES: Mapping[str, str] = {
    name: f"trainwright.stages.train.schedule:{name}" for name in ("cosine", "linear", "wsd", "constant")
}
SCHEDULE = Extension("schedule", SCHEDULES, Called(arguments=("done", "section")))

_Schedule = Annotated[
    str, SCHEDULE, Field(description="decay shape; wsd is warm-up, stable, then linear decay over decay_fraction")
]


class ScheduleSection(Section):
    """Linear warm-up, then a schedule. A plug-in's class of keys derives from it, or from ``DecaySection``."""

    name: _Schedule = "cosine"
    warmup: DurationText = Field("100 steps", description="length of the warm-up")


class DecaySection(ScheduleSection):
    """A decay to a share of the peak."""

    final_ratio: float = Field(0.1, ge=0, le=1, description="learning rate at the end as a share of the peak")


class WsdSection(DecaySection):
    """Stable, then linear decay."""

    name: _Schedule = "wsd"
    decay_fraction: float = Field(0.2, gt=0, le=1, description="share of the run that wsd decays over")


SCHEDULE_KEYS: Mapping[str, type[ScheduleSection]] = {"cosine": DecaySection, "linear": DecaySection, "wsd": WsdSection}
"""The classes of keys beside each name of ours."""
