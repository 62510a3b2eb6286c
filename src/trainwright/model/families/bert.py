"""BERT (Devlin et al., 2018): norms behind sums, learned positions, two segments, GELU, a pooler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.model.encoder import form
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.encoders import bert
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = form.HeadNames(
    body="bert",
    transform="cls.predictions.transform.dense",
    transform_norm="cls.predictions.transform.LayerNorm",
    decoder="cls.predictions.decoder",
    tied_bias="cls.predictions.bias",
    classifier_pooler="bert.pooler.dense",
    classifier="classifier",
    token_classifier="classifier",  # a name of weights
)
SPARE = re.compile(r"^(bert\.)?pooler\.|^cls\.seq_relationship\.|^cls\.predictions\.(decoder\.(weight|bias)|bias)$")
"""Weights that a directory may hold beside those of its architecture: other heads, and copies of tied ones."""


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    form.check(read)
    return bert(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape.

    Raises:
        ValueError: BERT in Hugging Face form has no grouped heads, no free head size and one rate of dropout.
    """
    return form.to_config(spec, kind="bert", prefix="Bert")


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights under Hugging Face names."""
    return form.to_hf(weights, spec, _NAMES)


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights under our names.

    Raises:
        KeyError: a weight is missing; names it.
    """
    return form.from_hf(weights, spec, _NAMES)
