"""The ``optimize`` section of a recipe: what the ladder tries, and how long it measures."""

from typing import Literal

from pydantic import Field, field_validator

from trainwright.spec.sections.base import Positive, Section

TechniqueName = Literal[
    "micro-batch",
    "bf16",
    "compile",
    "attention",
    "document-attention",
    "cuda-graphs",
    "fused-update",
    "chunked-loss",
    "recompute",
]


class OptimizeSection(Section):
    """What is tried to make training faster."""

    techniques: tuple[TechniqueName, ...] | Literal["all"] = Field("all", description="what is tried, in this order")
    # Of fewer than six not even the whole range holds the median in nineteen of twenty cases.
    steps: int = Field(20, ge=6, description="updates that are timed in each measurement")
    warmup_steps: Positive = Field(3, description="updates before them, which compile and fill caches")

    @field_validator("techniques")
    @classmethod
    def _name_each_once(cls, names: object) -> object:
        if isinstance(names, tuple) and len(set(names)) < max(1, len(names)):
            raise ValueError(f"names {'one twice' if names else 'no technique'}: write all, or a list such as [bf16]")
        return names
