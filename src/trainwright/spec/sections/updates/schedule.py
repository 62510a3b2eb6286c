"""The keys of ``train.schedule``: the learning rate over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import DurationText, Section

SCHEDULES: Mapping[str, str] = {
    **{name: f"trainwright.stages.train.schedule:{name}" for name in ("cosine", "linear", "wsd", "constant")},
    "inverse-sqrt": "trainwright.stages.train.schedule:inverse_sqrt",
    "cosine-restarts": "trainwright.stages.train.schedule:cosine_restarts",
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


class InverseSqrtSection(ScheduleSection):
    """The inverse square root of what is done."""

    name: _Schedule = "inverse-sqrt"
    timescale: float = Field(
        0.1, gt=0, description="share of the run behind the warm-up after which the rate is 1/sqrt(2) of its peak"
    )


class RestartsSection(DecaySection):
    """Cosines one after the other, each from the peak."""

    name: _Schedule = "cosine-restarts"
    cycles: int = Field(4, ge=1, le=1000, description="cosines in the run")
    cycle_growth: float = Field(1.0, ge=1, le=100, description="length of a cosine over that of the one before")


SCHEDULE_KEYS: Mapping[str, type[ScheduleSection]] = {
    "cosine": DecaySection,
    "linear": DecaySection,
    "wsd": WsdSection,
    "inverse-sqrt": InverseSqrtSection,
    "cosine-restarts": RestartsSection,
}
"""The classes of keys beside each name of ours."""
