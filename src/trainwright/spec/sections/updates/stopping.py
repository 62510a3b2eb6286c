"""``train.early_stopping``: a training that ends when its validations no longer get better."""

from __future__ import annotations

from pydantic import Field, field_validator

from trainwright.core.registry import load
from trainwright.spec.sections.base import Positive, Section

MEANT = "trainwright.spec.sections.meant:check"


class EarlyStoppingSection(Section):
    """When a training ends before its duration, and which weights it then has."""

    patience: Positive = Field(3, description="validations in a row that are no better, after which training ends")
    min_delta: float = Field(0.0, ge=0, description="by how much a validation must be better than the best before")
    by: str = Field("min loss", description="what better is: min or max, and a metric of validation")
    restore_best: bool = Field(
        True, description="the result has the weights of the best validation, which are kept; false: the last ones"
    )

    @field_validator("by", mode="before")
    @classmethod
    def _is_meant(cls, value: object) -> object:
        load(MEANT, kind="check")("best_by", value)
        return value

    @property
    def metric(self) -> str:
        """Returns the name of what is measured."""
        return self.by.split(maxsplit=1)[1]

    def is_better(self, value: float, best: float | None) -> bool:
        """Returns whether a validation is better than the best before it, by more than ``min_delta``."""
        if best is None:
            return True
        gain = best - value if self.by.startswith("min ") else value - best
        return gain > self.min_delta
