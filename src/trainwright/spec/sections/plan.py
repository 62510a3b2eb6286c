"""The ``plan`` section of a recipe: what the plan compares with."""

from __future__ import annotations

from pydantic import Field

from trainwright.spec.sections.base import Section


class PlanSection(Section):
    """What the plan compares with."""

    rent_on: tuple[str, ...] = Field(
        ("t4", "l4", "a10g", "a100-sxm-80gb", "h100-sxm"), description="devices to price the same run on"
    )
