"""Rotary positions (Su et al., 2021, arXiv 2104.09864) in the half-split layout of Llama, and their scaling.

Shape legend: ``batch``, ``seq`` (query tokens), ``n`` (heads of one kind), ``head``, ``half`` (pairs that are turned).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.rotary import RopeScaling

Rotary = tuple[Float[Tensor, "#batch 1 seq half"], Float[Tensor, "#batch 1 seq half"]]


class RotaryTable(nn.Module):
    """Cosines and sines of rotary positions.

    The table is a function of the spec alone and belongs to no checkpoint.

    Args:
        spec: the shape.
        windowed: of the layers with a window, where these have a base of their own.
        dtype: of the table, at least that of activations.
    """

    cosines: Tensor
    sines: Tensor
    long_cosines: Tensor
    long_sines: Tensor

    def __init__(self, spec: ModelSpec, *, windowed: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        base, scaling = spec.rope_theta, spec.rope_scaling
        if windowed and spec.window_rope_theta is not None:
            base, scaling = spec.window_rope_theta, None
        plain = base ** -(torch.arange(0, spec.rotated_size, 2, dtype=torch.float64) / spec.rotated_size)
        frequencies = plain if scaling is None else scaled(plain, scaling, base=base)
        self.long_from: int | None = None
        self._fill("", frequencies, spec, scaling, dtype)
        if scaling is not None and scaling.kind == "longrope":
            self.long_from = scaling.original_tokens
            self._fill("long_", scaled(plain, scaling, base=base, long=True), spec, scaling, dtype)

    def _fill(
        self, kind: str, frequencies: Tensor, spec: ModelSpec, scaling: RopeScaling | None, dtype: torch.dtype
    ) -> None:
        angles = torch.outer(torch.arange(spec.context_tokens, dtype=torch.float64), frequencies)
        factor = 1.0 if scaling is None else scaling.attention_factor
        self.register_buffer(f"{kind}cosines", angles.cos().mul_(factor).to(dtype), persistent=False)
        self.register_buffer(f"{kind}sines", angles.sin().mul_(factor).to(dtype), persistent=False)

    def forward(self, positions: Int[Tensor, "#batch seq"], dtype: torch.dtype, *, tokens: int) -> Rotary:
        """Cosines and sines of these positions, one for each pair of a head.

        Args:
            positions: where tokens stand.
            dtype: of what they turn.
            tokens: of the whole sequence, or as many as its cache may hold: longrope chooses its factors by them.
        """
        cosines, sines = self.cosines, self.sines
        if self.long_from is not None and tokens > self.long_from:
            cosines, sines = self.long_cosines, self.long_sines
        return cosines[positions].to(dtype).unsqueeze(1), sines[positions].to(dtype).unsqueeze(1)


def scaled(
    frequencies: Float[Tensor, " half"], scaling: RopeScaling, *, base: float, long: bool = False
) -> Float[Tensor, " half"]:
    """Returns radians for each token of every pair, from those of ``base`` alone; see ``RopeScaling``.

    ``long``: for longrope, of sequences beyond the original context.
    """
    if scaling.kind == "longrope":
        factors = scaling.long_factors if long else scaling.short_factors
        return frequencies / torch.tensor(factors, dtype=frequencies.dtype)
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "dynamic":
        return frequencies
    assert scaling.original_tokens is not None
    kept = _kept_by_pair if scaling.kind == "yarn" else _kept_by_turns
    share = kept(frequencies, scaling, scaling.original_tokens, base)
    return frequencies * share + frequencies / scaling.factor * (1 - share)


def _kept_by_turns(frequencies: Tensor, scaling: RopeScaling, tokens: int, base: float) -> Float[Tensor, " half"]:
    """Llama 3: the share of each frequency that is kept grows with its turns in the original context."""
    del base
    turns = tokens * frequencies / (2 * math.pi)
    return ((turns - scaling.slow_turns) / (scaling.fast_turns - scaling.slow_turns)).clamp(0, 1)


def _kept_by_pair(frequencies: Tensor, scaling: RopeScaling, tokens: int, base: float) -> Float[Tensor, " half"]:
    """YaRN: the share falls with the pair's number, between those that turn fast and slow so often."""
    pairs = len(frequencies)

    def pair_of(turns: float) -> float:
        return pairs * math.log(tokens / (2 * math.pi * turns)) / math.log(base)

    first, last = pair_of(scaling.fast_turns), pair_of(scaling.slow_turns)
    if scaling.truncated:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    width = last - first or 0.001  # of no ramp at all: a step
    return 1 - ((torch.arange(pairs, dtype=torch.float64) - first) / width).clamp(0, 1)


def rotate(x: Float[Tensor, "batch n seq head"], rotary: Rotary) -> Float[Tensor, "batch n seq head"]:
    """Turn each pair (x[i], x[i + half]) by its position's angle; elements behind the pairs stay as they are."""
    cosines, sines = rotary
    turned = 2 * cosines.shape[-1]
    if turned < x.shape[-1]:
        return torch.cat((rotate(x[..., :turned], rotary), x[..., turned:]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
