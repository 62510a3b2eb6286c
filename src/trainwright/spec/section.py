"""The base of every recipe section: frozen, and no unknown keys; and the numbers that several of them share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
"""At least one of something countable."""


class Section(BaseModel):
    """A mapping in a recipe file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
