"""The base of every recipe section: frozen, and no unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping in a recipe file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
