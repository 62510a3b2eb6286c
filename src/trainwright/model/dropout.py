"""Dropout without a state: whether an element is dropped is a hash of whose it is and of where it stands.

Its sample's key (``sample_keys``: of seed, step and the row in the whole batch), its site (layer and operation) and its
places (in the sequence, and the channel; of an attention weight head, query and key) decide. So every cut of a batch
into micro batches, ranks, parts of sequences, heads or channels drops the same elements, and a pass that is computed
again too: masks are made anew in the backward pass, and none is kept.

Shape legend: ``batch`` (sequences), ``seq`` (tokens here), ``heads``, ``keys`` (tokens attended to), ``head``,
``width``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.runtime.rng import derive
from trainwright.spec.parts.dropout import Dropout

_PURPOSE = 0x64726F70
"""Keeps keys of samples apart from other numbers that are derived from the same seed."""
_WORD = 0xFFFFFFFF
# The mixer [16 21f0aaad 15 735a2d97 15] of github.com/skeeto/hash-prospector, issue 19, among the least biased with two
# products. Both factors are below 2**31, so that 64-bit integers hold each product: no overflow, which C++ leaves open.
_FIRST, _SECOND = 0x21F0AAAD, 0x735A2D97
_CHUNK_ELEMENTS = 1 << 16
"""Elements whose hashes stay in a core's cache, where no compiler makes one pass of them: five times as fast."""

Mix = Callable[[Tensor, Tensor], Tensor]
"""Takes attention's weights and values, of one key head for each query head."""

EMBEDDED, WEIGHTS, ATTENTION_OUTPUT, FFN_OUTPUT = range(4)
BRANCH = 1 << 24
"""Added to the site of a sub-layer's output: that of the sub-layer as a whole. There are fewer layers than that."""


def sample_keys(seed: int, step: int, rows: Sequence[int]) -> Int[Tensor, " batch"]:
    """Returns 64 bits for each of these rows of a step's whole batch, over all ranks and micro batches."""
    key = derive(seed, _PURPOSE, step)
    keys = [derive(key, row) for row in rows]
    return torch.tensor([value - (value >> 63 << 64) for value in keys], dtype=torch.int64)


def kept(
    samples: Int[Tensor, " batch"], site: int, rate: float, *places: Int[Tensor, " _"]
) -> Bool[Tensor, "batch ..."]:
    """Returns which elements stay: each is dropped with probability ``rate``, independently of all others.

    Args:
        samples: keys of the sequences.
        site: which operation of which layer.
        rate: in [0, 1), in units of 2**-32.
        places: along each further dim, where its elements stand in the tensor that no cut has touched; below 2**31.
    """
    low, high = _turn((samples & _WORD) ^ site, (samples >> 32) & _WORD)
    for place in places[:-1]:
        low, high = _turn(low.unsqueeze(-1) ^ place, high.unsqueeze(-1))
    dropped, last = round(rate * (_WORD + 1)), places[-1]
    if low.device.type != "cpu" or torch.compiler.is_compiling():
        return mixed_bits(low.unsqueeze(-1) ^ last, high.unsqueeze(-1)) >= dropped
    mask = torch.empty(low.numel(), len(last), dtype=torch.bool)
    rows = max(1, _CHUNK_ELEMENTS // max(1, len(last)))
    parts = zip(mask.split(rows), low.view(-1, 1).split(rows), high.view(-1, 1).split(rows), strict=True)
    for part, part_low, part_high in parts:
        torch.ge(mixed_bits(part_low ^ last, part_high), dropped, out=part)
    return mask.view(*low.shape, len(last))


def _turn(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Mixes two words, one to one, so that two that differ never meet, and both decide all that is derived of them."""
    low = mixed_bits(low, 0)
    return low, mixed_bits(high + low & _WORD, 0)


def mixed_bits(bits: Tensor, other: Tensor | int) -> Tensor:
    """Returns 32 bits of 32, all in 64-bit integers; 32 others enter half-way, so that both words decide the result."""
    bits = (bits ^ bits >> 16) * _FIRST & _WORD ^ other
    bits = (bits ^ bits >> 15) * _SECOND & _WORD
    return bits ^ bits >> 15


Where = tuple[Any, ...]
"""What a mask follows from beside the tensor's sizes: keys of samples, places, and the site with its rate."""


class _Dropped(torch.autograd.Function):
    """``x`` without what is dropped, the rest scaled by 1 / (1 - rate); the mask is made again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *where: Any) -> Tensor:
        *tensors, ctx.settings = where
        ctx.save_for_backward(*tensors)
        return dropped(x, where)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        return dropped(grad, (*ctx.saved_tensors, ctx.settings)), None, None, None


def dropped(x: Tensor, where: Where) -> Tensor:
    """Returns ``x`` without what falls there, the rest scaled; ``where``: keys, places, and (site, rate, channel)."""
    samples, places, (site, rate, first) = where
    channels = torch.arange(first, first + x.shape[-1], device=x.device)
    return _scaled(x, kept(samples, site, rate, places, channels), rate)


def _scaled(x: Tensor, stays: Tensor, rate: float) -> Tensor:
    return torch.where(stays, x * (1 / (1 - rate)), 0.0)


class _MixedWithout(torch.autograd.Function):
    """Product of attention's weights and values without the weights that are dropped.

    Kept are the weights, which softmax keeps too: what is left of them is made again in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, value: Tensor, *where: Any) -> Tensor:
        *tensors, ctx.settings = where
        ctx.save_for_backward(weights, value, *tensors)
        return torch.matmul(_scaled(weights, _stays(weights, where), ctx.settings[1]), value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        weights, value, *tensors = ctx.saved_tensors
        rate, stays = ctx.settings[1], _stays(weights, (*tensors, ctx.settings))
        of_weights = _scaled(torch.matmul(grad, value.transpose(-2, -1)), stays, rate)
        return of_weights, torch.matmul(_scaled(weights, stays, rate).transpose(-2, -1), grad), None, None, None, None


def _stays(weights: Tensor, where: Where) -> Tensor:
    samples, queries, keys, (site, rate, first) = where
    heads = torch.arange(first, first + weights.shape[1], device=weights.device)
    seen = torch.arange(weights.shape[3], device=weights.device) if keys is None else keys
    return kept(samples, site, rate, heads, queries, seen)


def without(
    x: Float[Tensor, "batch seq width"],
    samples: Int[Tensor, " batch"],
    places: Int[Tensor, " seq"],
    *,
    site: int,
    rate: float,
    first_channel: int = 0,
) -> Float[Tensor, "batch seq width"]:
    """Returns ``x`` with each element dropped with probability ``rate``, and the others scaled by 1 / (1 - rate).

    ``first_channel`` is the first of the channels that are here, where the width is divided.
    """
    result: Tensor = _Dropped.apply(x, samples, places, (site, rate, first_channel))
    return result


class _Skipped(torch.autograd.Function):
    """``x`` without the sequences that skip it, the others scaled by 1 / (1 - rate); they are drawn again backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, samples: Tensor, site: int, rate: float) -> Tensor:
        ctx.save_for_backward(samples)
        ctx.where = site, rate
        return _skipped(x, samples, site, rate)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (samples,) = grads, ctx.saved_tensors
        return _skipped(grad, samples, *ctx.where), None, None, None


def _skipped(x: Tensor, samples: Tensor, site: int, rate: float) -> Tensor:
    stays = kept(samples, site, rate, torch.zeros(1, dtype=torch.int64, device=x.device))
    return _scaled(x, stays.unsqueeze(-1), rate)


def skipped(
    x: Float[Tensor, "batch seq width"], samples: Int[Tensor, " batch"], *, site: int, rate: float
) -> Float[Tensor, "batch seq width"]:
    """Returns ``x`` with each sequence zero with probability ``rate``, and the others scaled by 1 / (1 - rate)."""
    result: Tensor = _Skipped.apply(x, samples, site, rate)
    return result


def mixed_without(
    weights: Float[Tensor, "batch heads seq keys"],
    value: Float[Tensor, "batch heads keys head"],
    samples: Int[Tensor, " batch"],
    queries: Int[Tensor, " seq"],
    *,
    site: int,
    rate: float,
    keys: Int[Tensor, " keys"] | None = None,
    first_head: int = 0,
) -> Float[Tensor, "batch heads seq head"]:
    """Returns the product of attention's weights and values, with weights dropped with probability ``rate``.

    Args:
        weights: after softmax.
        value: for each query head.
        samples: keys of the sequences.
        queries: where the queries stand in the sequence.
        site: which layer's attention.
        rate: in [0, 1).
        keys: where the keys stand in it; 0, 1, 2... when None.
        first_head: the first of the heads that are here, where they are divided.
    """
    result: Tensor = _MixedWithout.apply(weights, value, samples, queries, keys, (site, rate, first_head))
    return result


@dataclass(frozen=True, slots=True)
class Draw:
    """What is dropped from one micro batch: the network's rates, applied to its sequences at their places."""

    dropouts: Dropouts
    samples: Int[Tensor, " batch"]
    places: Int[Tensor, " seq"]

    def embedded(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq width"]:
        """Returns what enters the first block."""
        return self._without(x, EMBEDDED, self.dropouts.rates.embedding)

    def attention_output(self, x: Float[Tensor, "batch seq width"], layer: int) -> Float[Tensor, "batch seq width"]:
        """Returns what a layer's attention adds to the residual stream."""
        return self._branch(x, layer, ATTENTION_OUTPUT)

    def ffn_output(self, x: Float[Tensor, "batch seq width"], layer: int) -> Float[Tensor, "batch seq width"]:
        """Returns what a layer's feed-forward adds to the residual stream."""
        return self._branch(x, layer, FFN_OUTPUT)

    def mix(self, layer: int, *, queries: Int[Tensor, " seq"] | None = None, heads_before: int = 0) -> Mix | None:
        """Returns a layer's product of attention's weights and values; None where no weight is dropped.

        Args:
            layer: its number.
            queries: where the queries stand, if they are not all that are here.
            heads_before: of the heads that are here, how many come before those of the product.
        """
        rate, first = self.dropouts.rates.attention, self.dropouts.first_head + heads_before
        site, samples, queries = 4 * layer + WEIGHTS, self.samples, self.places if queries is None else queries
        if not rate:
            return None
        return partial(mixed_without, samples=samples, queries=queries, site=site, rate=rate, first_head=first)

    def _branch(self, x: Tensor, layer: int, which: int) -> Tensor:
        """Returns what a sub-layer adds to the residual stream: without elements, and without it as a whole."""
        rates, site = self.dropouts.rates, 4 * layer + which
        x = self._without(x, site, rates.residual)
        rate = rates.at_depth(layer, self.dropouts.layers)
        return skipped(x, self.samples, site=BRANCH + site, rate=rate) if rate else x

    def _without(self, x: Tensor, site: int, rate: float) -> Tensor:
        first = self.dropouts.first_channel
        return without(x, self.samples, self.places, site=site, rate=rate, first_channel=first) if rate else x


@dataclass(frozen=True, slots=True)
class Dropouts:
    """The dropout of a network, or of a part of it: rates, and the first of its heads and of its residual channels.

    ``layers`` are those of the whole network.
    """

    rates: Dropout
    layers: int
    first_head: int = 0
    first_channel: int = 0

    def draw(
        self,
        tokens: Shaped[Tensor, "batch ..."],
        samples: Int[Tensor, " batch"] | None,
        places: Int[Tensor, " seq"] | None,
    ) -> Draw:
        """Returns what is dropped from these sequences, given as token ids or as hidden states.

        Raises:
            RecipeError: nobody said which sequences they are.
        """
        if samples is None:
            raise RecipeError(
                "dropout needs the keys of a batch's sequences",
                where="model.dropout",
                seen="a network in training without samples",
                fix="let the task's inputs and hidden pass the batch's samples on to the network",
            )
        here = torch.arange(tokens.shape[1], device=tokens.device) if places is None else places
        return Draw(self, samples, here)
