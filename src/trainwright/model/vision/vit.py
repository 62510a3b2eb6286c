"""The vision transformer (Dosovitskiy et al., 2020, arXiv 2010.11929), built from a ``ModelSpec``.

An image is cut into square patches, each is projected to the width, a class token stands before them, and learned
positions are added. The blocks are the decoder's, but every token sees every other one. Logits are read off the class
token.

Shape legend: ``batch`` (images), ``side`` (pixels), ``seq`` (the class token and the patches), ``patches``, ``pixels``
(values of one patch), ``rows`` (of hidden states), ``width``, ``heads``, ``head``, ``classes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainwright.core.registry import load
from trainwright.model.decoder import DROPOUTS, INIT_STD, SELECTIVE, Block
from trainwright.model.layers import Linear, make_norm
from trainwright.model.network import Network, unbuilt
from trainwright.model.parts.initial import normal
from trainwright.model.parts.plain import OF_IMAGES
from trainwright.planner.counts.pieces import makes_scores
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import AttentionKernel, KernelChoice, Recompute

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache

CHANNELS = 3
"""Red, green and blue."""
KERNELS: tuple[AttentionKernel, ...] = ("auto", "math", "sdpa")

_BUILT: Mapping[str, tuple[object, ...]] = {
    **OF_IMAGES,
    "positions": ("learned",),
    "convolutions": (None,),
}
"""Fields of ``ModelSpec`` with the values that this network computes, whatever the other fields are."""


def refusals(spec: ModelSpec) -> tuple[str, ...]:
    """Returns why this is not the network that the spec describes, a line for each field; empty where it is."""
    built = dict(_BUILT)
    built["output_bias"] = (None, spec.bias)
    if spec.patch_size:
        built["context_tokens"] = ((spec.image_size // spec.patch_size) ** 2 + 1,)
    reasons = unbuilt("ViT", spec, built)
    if spec.dropout.attention:
        reasons += (
            f"ViT drops no weights of attention: it computes dropout.attention=0, not {spec.dropout.attention}",
        )
    return reasons


def see_all(
    query: Float[Tensor, "batch heads seq head"],
    key: Float[Tensor, "batch kv_heads seq head"],
    value: Float[Tensor, "batch kv_heads seq head"],
    *,
    kernel: AttentionKernel,
) -> Float[Tensor, "batch heads seq head"]:
    """Returns softmax attention in which every token sees every other; whole scores where ``attend`` makes them too."""
    grouped = key.shape[1] != query.shape[1]
    whole = makes_scores(kernel, device_kind=query.device.type, sequence_tokens=key.shape[-2])
    if not (whole and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=grouped)
    if grouped:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1))
    return torch.matmul(torch.softmax(scores, dim=-1), value)


class ViT(Network):
    """The vision transformer; its head gives logits over ``spec.classes``.

    Args:
        spec: the shape.
        dtype: of activations and matrix products; parameters stay fp32.
        recompute: what of a block is computed again in the backward pass: ``full`` keeps its input alone, ``selective``
            the results of its products too (``model.recompute``).

    Raises:
        ValueError: the spec describes no network (its ``problems``), or one that is not built here (``refusals``).
    """

    def __init__(self, spec: ModelSpec, *, dtype: torch.dtype = torch.float32, recompute: Recompute = "none") -> None:
        super().__init__()
        problems = spec.problems() or refusals(spec)
        if problems:
            raise ValueError("; ".join(problems))
        self.spec = spec
        self.compute_dtype = dtype
        self._selective = load(SELECTIVE, kind="recompute") if recompute == "selective" else None
        drops = load(DROPOUTS, kind="dropout") if spec.dropout else None
        self.dropouts = None if drops is None else drops(spec.dropout, spec.layers)
        self.patch = Linear(CHANNELS * spec.patch_size**2, spec.width, bias=True)
        self.class_token = nn.Parameter(torch.empty(spec.width))
        self.positions = nn.Parameter(torch.empty(spec.context_tokens, spec.width))
        self.blocks = nn.ModuleList(Block(spec, layer) for layer in range(spec.layers))
        self.recompute_in(0 if recompute == "none" else spec.layers)
        self.norm = make_norm(spec)
        self.head = Linear(spec.width, spec.classes, bias=True)

    @property
    def head_weight(self) -> Float[Tensor, "classes width"]:
        """Returns the head's matrix."""
        return self.head.weight

    @property
    def logit_bias(self) -> Float[Tensor, " classes"] | None:
        """Returns the head's bias."""
        return self.head.bias

    def tables(self) -> dict[str, nn.Parameter]:
        """Returns none: every patch, and every position, has a gradient in every step."""
        return {}

    def recompute_in(self, count: int) -> None:
        """Compute so many blocks again, spread evenly."""
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            block.recomputed = (layer + 1) * count // self.spec.layers > layer * count // self.spec.layers

    def use(self, kernels: KernelChoice) -> None:
        """Take over the kernels; a ValueError says that this attention, which sees all, has no such kernel."""
        if kernels.attention not in KERNELS:
            raise ValueError(f"ViT's attention is one of {', '.join(KERNELS)}, not attention={kernels.attention}")
        self.kernels = kernels

    def forward(
        self,
        tokens: Float[Tensor, "batch channels side side"],
        *,
        positions: Int[Tensor, "#batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: KVCache | None = None,
        samples: Int[Tensor, " batch"] | None = None,
        places: Int[Tensor, " seq"] | None = None,
        part: range | None = None,
    ) -> Float[Tensor, "batch seq width"]:
        """Returns normalised hidden states of the class token, which is the first, and of the patches, row by row.

        Args:
            tokens: images, normalised, as large as the spec says.
            positions: none; as ``documents``, ``cache``, ``places`` and ``part``, which are for sequences of tokens.
            documents: none.
            cache: none.
            samples: 64 bits of each image's own, which decide what training drops (``model.dropout``).
            places: none.
            part: none.

        Raises:
            ValueError: something else than images and ``samples`` was given.
        """
        if any(given is not None for given in (positions, documents, cache, places, part)):
            raise ValueError("ViT takes whole images: no positions, documents, cache, places or part")
        x = self.embedded(tokens.to(self.compute_dtype))
        dropouts = self.dropouts if self.training else None
        draw = None if dropouts is None else dropouts.draw(x, samples, None)
        x = x if draw is None else draw.embedded(x)
        attention = partial(see_all, kernel=self.kernels.attention)
        for block in self.blocks:
            if block.recomputed and self.training:
                again: Callable[..., Tensor] = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
                kept = {} if self._selective is None else self._selective(block)
                x = again(block, x, None, attention, None, draw, **kept)
            else:
                x = block(x, None, attention, None, draw)
        normed: Tensor = self.norm(x)
        return normed

    def embedded(self, images: Float[Tensor, "batch channels side side"]) -> Float[Tensor, "batch seq width"]:
        """Returns the class token and the projected patches, each with its position's row."""
        x = self.patch(patches(images, self.spec.patch_size))
        first = self.class_token.to(x.dtype).expand(x.shape[0], 1, -1)
        return torch.cat((first, x), dim=1) + self.positions.to(x.dtype)

    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields first values, from a generator that the seed keys.

        Matrices, class token and positions are normal with ``INIT_STD``, as the decoder's are; those that write into
        the residual stream are scaled by 1/sqrt(2 layers); norms are one, biases zero.
        """
        residual_std = INIT_STD / math.sqrt(2 * self.spec.layers)

        def deviation(name: str) -> float:
            return residual_std if name.endswith(("out.weight", "down.weight")) else INIT_STD

        return normal(self.shapes, seed, deviation)


def patches(images: Float[Tensor, "batch channels side side"], size: int) -> Float[Tensor, "batch patches pixels"]:
    """Returns the values of each patch of ``size`` x ``size``, channel by channel; patches row by row of the image."""
    batch, channels, side, _ = images.shape
    across = side // size
    cut = images.reshape(batch, channels, across, size, across, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, across * across, channels * size * size)
