"""A model family that the project does not have, and its form in Hugging Face files; to name weights needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.core.records import from_json, to_json
from trainwright.spec.families.family import Family
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = Family(
    gated=False,
    norm="rmsnorm",
    positions="rope",
    bias=False,
    activation="gelu_tanh",
    tied=True,
    ffn_width=lambda width: 2 * width,
    huggingface=__name__,
)
PREFIX = "newcomer."


def to_config(spec: ModelSpec) -> dict[str, Any]:
    return {"model_type": spec.family, "shape": to_json(spec)}


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    return from_json(ModelSpec, config["shape"], where=where)


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    return {PREFIX + name: weight for name, weight in weights.items()}


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    return {name.removeprefix(PREFIX): weight for name, weight in weights.items()}
