"""The ``evaluate`` section of a recipe: splits and prompts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.spec.sections.base import Count, Section


class EvaluateExec(Section):
    """How evaluation is carried out."""

    batch_sequences: int = Field(16, gt=0, description="sequences per forward pass")


class EvaluateSection(Section):
    """What is measured on the trained model."""

    splits: tuple[Literal["train", "validation", "test"], ...] = Field(
        ("validation", "test"), min_length=1, description="splits to measure"
    )
    tokens: Count | None = Field(None, description="tokens per split; default: all")
    prompts: tuple[str, ...] = Field((), description="texts to complete")
    max_new_tokens: int = Field(96, gt=0, description="longest completion")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token")
    exec: EvaluateExec = Field(default_factory=EvaluateExec, description="how, not what")
