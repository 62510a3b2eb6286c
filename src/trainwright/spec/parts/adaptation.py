"""``Adaptation``: what adapters stand beside the weights of which base; ``adapters.json`` in a model's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainwright.core.frozen import dataclass

DEFAULT = "default"
"""The name of a training's own adapter, as PEFT has it."""
FrozenFormat = Literal["auto", "nf4"]  # as products take them; the linear layers of a base's blocks in nf4


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRank:
    """Two factors beside one matrix: ``scale * b @ a``, with ``a`` of shape [rank, inputs]."""

    rank: int
    scale: float
    """alpha / rank (LoRA, Hu et al., 2021) or alpha / sqrt(rank) (rsLoRA, Kalajdzievski, 2023, arXiv 2312.03732)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModel:
    """The model that adapters stand beside: its folder, and the sha256 of its shape and weights there."""

    path: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Adaptation:
    """Adapters beside matrices of a base, by the names of the network's modules.

    ``magnitude``: a matrix's rows are made as long as a trained vector says (DoRA, Liu et al., 2024, arXiv 2402.09353).
    ``frozen``: with ``nf4`` they were trained beside what it makes of the base, and are merged into that.
    """

    modules: Mapping[str, LowRank]
    base: BaseModel
    magnitude: bool = False
    frozen: FrozenFormat = "auto"
