"""The ``train.method`` section of a recipe: all weights are trained, or adapters beside frozen ones."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.spec.parts.adaptation import FrozenFormat
from trainwright.spec.sections.base import Positive, Section

Scaling = Literal["alpha/rank", "alpha/sqrt(rank)"]


class MethodSection(Section):
    """Which weights a training changes."""

    name: Literal["full", "lora", "dora"] = Field(
        "full", description="all weights, or low-rank adapters beside frozen ones; dora trains rows' lengths too"
    )
    rank: Positive = Field(16, description="of each adapter's two factors")
    alpha: float = Field(32.0, gt=0, description="what an adapter's product is multiplied by, before scaling")
    scaling: Scaling = Field("alpha/rank", description="factor of an adapter's product; alpha/sqrt(rank) is rsLoRA")
    targets: tuple[str, ...] = Field(
        ("all-linear",),
        min_length=1,
        description="matrices with adapters: all-linear, attention, names (query, q_proj), patterns (blocks.0.*.query)",
    )

    dropout: float = Field(0.0, ge=0, lt=1, description="how much of its input an adapter does not see in training")
    frozen: FrozenFormat = Field(
        "auto",
        description="how a base's matrices are kept: auto, as products take them; nf4, in 4 bits (QLoRA, with lora)",
    )

    @property
    def adapts(self) -> bool:
        """Returns whether adapters are trained, and the weights that they stand beside are not."""
        return self.name != "full"

    @property
    def scale(self) -> float:
        """Returns what an adapter's product is multiplied by."""
        return self.alpha / (self.rank if self.scaling == "alpha/rank" else math.sqrt(self.rank))

    @model_validator(mode="after")
    def _keys_of_its_own(self) -> Self:
        fields = type(self).model_fields
        changed = [key for key in sorted(self.model_fields_set) if getattr(self, key) != fields[key].default]
        if not self.adapts and changed:
            raise ValueError(f"{changed[0]} is for adapters: set name=lora, seen name={self.name}")
        if self.frozen == "nf4" and self.name == "dora":
            raise ValueError(
                "frozen=nf4 is for lora: dora takes lengths of whole rows in each pass, seen name=dora; set name=lora"
            )
        return self


WHOLE = MethodSection()
"""All weights are trained."""
