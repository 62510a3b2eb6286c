"""Attention with linear biases (ALiBi; Press et al., 2022, arXiv 2108.12409): the further a key, the lower its score.

Shape legend: ``batch``, ``heads``, ``seq`` (query tokens), ``keys`` (tokens attended to).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.spec.model import ModelSpec


def slopes(heads: int) -> tuple[float, ...]:
    """Returns what each head's bias falls by for a token of distance.

    Of 2^n heads they are a geometric series from 2^(-8/2^n) to 2^-8; of other numbers that of the power of two below,
    then every other slope of the power above, as in the authors' code.
    """
    near = 1 << heads.bit_length() - 1
    exponents = [8 * (head + 1) / near for head in range(near)]
    exponents += [8 * (2 * head + 1) / (2 * near) for head in range(heads - near)]
    return tuple(2.0**-exponent for exponent in exponents)


def alibi_of(spec: ModelSpec) -> Alibi:
    """Returns the biases of a network."""
    return Alibi(tuple(slope * spec.scales.alibi for slope in slopes(spec.heads)), range(spec.heads))


@dataclass(frozen=True, slots=True)
class Alibi:
    """The biases of some heads.

    Attributes:
        slopes: of all heads.
        heads: the numbers of those that are here.
    """

    slopes: tuple[float, ...]
    heads: range

    def part(self, heads: range) -> Alibi:
        """Returns the biases of some of these heads, numbered among them."""
        return Alibi(self.slopes, self.heads[heads.start : heads.stop])

    def mask(
        self,
        seen: Float[Tensor, "#batch 1 seq keys"] | None,
        queries: Int[Tensor, "#batch seq"],
        *,
        keys: int,
        dtype: torch.dtype,
    ) -> Float[Tensor, "#batch heads seq keys"]:
        """Returns what is added to scores: minus slope times distance where a token may look, else -inf.

        Args:
            seen: 0 where a token may look, -inf where it may not; None: at itself and all earlier ones.
            queries: where they stand among the keys.
            keys: their number.
            dtype: of scores.
        """
        distance = (queries[:, :, None] - torch.arange(keys, device=queries.device)).unsqueeze(1)
        here = torch.tensor([self.slopes[head] for head in self.heads], device=queries.device)
        bias = distance * -here[:, None, None]
        if seen is None:
            return bias.masked_fill_(distance < 0, float("-inf")).to(dtype)
        return bias.to(dtype) + seen
