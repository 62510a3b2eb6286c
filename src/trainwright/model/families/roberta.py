"""RoBERTa (Liu et al., 2019): BERT's network; positions are counted from the one after the id of padding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.model.encoder import form
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.encoders import roberta
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = form.HeadNames(
    body="roberta",
    transform="lm_head.dense",
    transform_norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    tied_bias="lm_head.bias",
    classifier_pooler="classifier.dense",
    classifier="classifier.out_proj",
    token_classifier="classifier",  # a name of weights
)
SPARE = re.compile(r"^(roberta\.)?pooler\.|^lm_head\.(decoder\.(weight|bias)|bias)$")
"""Weights that a directory may hold beside those of its architecture: the pooler, and copies of tied ones."""


def from_config(config: Mapping[str, Any], *, where: str) -> ModelSpec:
    """Returns the shape a Hugging Face configuration describes.

    Raises:
        RecipeError: a key is missing, or asks for something this family does not compute.
    """
    read = ConfigReader(config, where=where)
    form.check(read)
    return roberta(read)


def to_config(spec: ModelSpec) -> dict[str, Any]:
    """Returns the Hugging Face configuration of a shape; positions follow from the id of padding there.

    Raises:
        ValueError: RoBERTa in Hugging Face form has no grouped heads, no free head size and one rate of dropout.
    """
    return form.to_config(spec, kind="roberta", prefix="Roberta") | {"pad_token_id": spec.extra_positions - 1}


def to_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Our weights under Hugging Face names."""
    return form.to_hf(weights, spec, _NAMES)


def from_hf(weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Hugging Face weights under our names.

    Raises:
        KeyError: a weight is missing; names it.
    """
    return form.from_hf(weights, spec, _NAMES)
