"""``Family``: what networks of one kind have in common, and the names of the code that computes and converts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.core.extension import Extension
from trainwright.core.plug_in import InstanceOf
from trainwright.spec.model import FAMILIES, Activation, Norm, Positions


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What a recipe's sizes are completed with; no torch here, so that plans need none.

    Attributes:
        gated: the feed-forward has three matrices.
        norm, positions, bias, activation, tied: as in ``ModelSpec``; a recipe may tie otherwise.
        ffn_width: the feed-forward's default size for a width.
        network: ``package.module:class`` of the ``Network`` that computes it.
        huggingface: the module with ``from_config``, ``to_config``, ``from_hf`` and ``to_hf``; None: it has no such
            form.
    """

    gated: bool
    norm: Norm
    positions: Positions
    bias: bool
    activation: Activation
    tied: bool
    ffn_width: Callable[[int], int]
    network: str = "trainwright.model.decoder:Decoder"
    huggingface: str | None = None


FAMILY = Extension("family", FAMILIES, InstanceOf(Family))
