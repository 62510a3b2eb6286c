"""``Encoder``: BERT, ModernBERT and their like, built from a ``ModelSpec``.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``rows`` (of hidden states), ``outputs`` (of the head).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainwright.core.registry import load
from trainwright.model.attention import Attention, Mask
from trainwright.model.decoder import DROPOUTS, INIT_STD, SELECTIVE
from trainwright.model.encoder.block import EncoderBlock, PreNormBlock, seen_both_ways
from trainwright.model.layers import Linear, make_norm
from trainwright.model.network import Network, unbuilt
from trainwright.model.parts.initial import normal
from trainwright.model.parts.plain import PLAIN
from trainwright.model.parts.rotary import Rotary, RotaryTable
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import MASKED_KERNELS, KernelChoice, Recompute

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache

_FREE = ("gated", "norm_bias", "first_norm", "window_tokens", "window_layers", "window_rope_theta", "head_transform")
"""Fields that networks of images leave out, and this one computes."""
_BUILT: Mapping[str, tuple[object, ...]] = {
    **{name: values for name, values in PLAIN.items() if name not in _FREE},
    "kind": ("encoder",),
    "positions": ("learned", "rope"),
    "activation": ("gelu",),
    "embedding_norm": (True,),
    "image_size": (0,),
    "convolutions": (None,),
    "patch_size": (0,),
}
"""Fields of ``ModelSpec`` with the values that this network computes, whatever the other fields are."""


def refusals(spec: ModelSpec) -> tuple[str, ...]:
    """Returns why this encoder is not the network that the spec describes, a line for each field; empty where it is."""
    built = dict(_BUILT)
    built["language_head"] = (None, False) if spec.classes else (None, True, False)
    if spec.head_transform:
        del built["pooling"]
    if spec.post_norm:
        built["first_norm"] = (True,)
    if spec.positions != "rope":
        built["window_rope_theta"] = (None,)
    return unbuilt("the encoder", spec, built)


class Encoder(Network):
    """A transformer whose tokens see both ways (Devlin et al., 2018).

    Its head gives logits over the vocabulary through a transform (Linear, GELU, norm); or over ``spec.classes``, of one
    state for each sequence through the pooler (Linear, tanh) where the spec has one, else of every token; or there is
    none. With ``head_transform`` the transform stands before classes too, in the pooler's place (Warner et al., 2024,
    arXiv 2412.13663). ``documents`` keep tokens apart as in a decoder: padding is a document of its own. Its tokens are
    all of segment 0.

    Args:
        spec: the shape.
        dtype: of activations and matrix products; parameters stay fp32.
        recompute: what of a block is computed again in the backward pass.

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
        width = spec.width
        self.embedding = nn.Parameter(torch.empty(spec.vocabulary, width))
        learned, rows = spec.positions == "learned", spec.context_tokens + spec.extra_positions
        self.positions = nn.Parameter(torch.empty(rows, width)) if learned else None
        self.segments = nn.Parameter(torch.empty(spec.segments, width)) if spec.segments else None
        self.embedding_norm = make_norm(spec)
        exact, own = torch.promote_types(dtype, torch.float32), spec.window_rope_theta is not None
        self.rotary = None if learned else RotaryTable(spec, dtype=exact)
        self.window_rotary = RotaryTable(spec, windowed=True, dtype=exact) if own else self.rotary
        block = EncoderBlock if spec.post_norm else PreNormBlock
        self.blocks = nn.ModuleList(block(spec, layer) for layer in range(spec.layers))
        self.recompute_in(0 if recompute == "none" else spec.layers)
        self.norm = make_norm(spec) if spec.final_norm else None
        self.pooler = Linear(width, width, bias=True) if spec.pooler and not spec.head_transform else None
        self.transform = Linear(width, width, bias=spec.bias) if spec.transforms else None
        self.transform_norm = make_norm(spec) if spec.transforms else None
        self.head: Linear | None = None
        self.head_bias: nn.Parameter | None = None
        if spec.classes:
            self.head = Linear(width, spec.classes, bias=True)
        elif spec.makes_logits and not spec.tied:
            self.head = Linear(width, spec.vocabulary, bias=spec.head_bias)
        elif spec.makes_logits and spec.head_bias:
            self.head_bias = nn.Parameter(torch.empty(spec.vocabulary))

    @property
    def head_weight(self) -> Float[Tensor, "outputs width"]:
        """Returns the head's matrix; the embedding itself where they are tied, or where there is no head."""
        return self.embedding if self.head is None else self.head.weight

    @property
    def logit_bias(self) -> Float[Tensor, " outputs"] | None:
        """Returns the bias of the head."""
        return self.head_bias if self.head is None else self.head.bias

    def head_names(self) -> frozenset[str]:
        """Returns the names of what stands on the blocks, without what a base brings along: what other tasks have."""
        parts = ("head.", "head_bias", *(() if self.spec.head_transform else ("transform.", "transform_norm.")))
        return frozenset(name for name, _ in self.named_parameters() if name.startswith(parts))

    def tables(self) -> dict[str, nn.Parameter]:
        """Returns the embeddings of tokens, positions and segments."""
        named = {"embedding": self.embedding, "positions": self.positions, "segments": self.segments}
        return {name: table for name, table in named.items() if table is not None}

    def recompute_in(self, count: int) -> None:
        """Compute so many blocks again, spread evenly."""
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, EncoderBlock)
            block.recomputed = (layer + 1) * count // self.spec.layers > layer * count // self.spec.layers

    def use(self, kernels: KernelChoice) -> None:
        """Take over the kernels of attention and loss; a ValueError says that a kernel looks one way alone."""
        if kernels.attention in MASKED_KERNELS:
            raise ValueError(f"attention={kernels.attention} hides later tokens, which an encoder sees")
        self.kernels = kernels
        for module in self.modules():
            if isinstance(module, Attention):
                module.kernel = kernels.attention

    def forward(
        self,
        tokens: Int[Tensor, "batch seq"] | Float[Tensor, "batch seq width"],
        *,
        positions: Int[Tensor, "#batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: KVCache | None = None,
        samples: Int[Tensor, " batch"] | None = None,
        places: Int[Tensor, " seq"] | None = None,
        part: range | None = None,
    ) -> Float[Tensor, "batch seq width"]:
        """Returns hidden states; see ``Network.forward``.

        Raises:
            ValueError: there is a cache, places or a part: the network has all of its sequences, and writes no text.
        """
        if cache is not None or places is not None or part is not None:
            raise ValueError("an encoder sees whole sequences: no cache, no places and no part of it")
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self._embedded(tokens, positions)
        draw = None if self.dropouts is None or not self.training else self.dropouts.draw(tokens, samples, None)
        x = x if draw is None else draw.embedded(x)
        sights = self._sights(positions, documents, x)
        for layer, block in enumerate(self.blocks):
            rotary, mask = sights[self.spec.window_of(layer)]
            if block.recomputed and self.training:
                again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
                kept = {} if self._selective is None else self._selective(block)
                x = again(block, x, rotary, mask, draw, **kept)
            else:
                x = block(x, rotary, mask, draw)
        return x if self.norm is None else self.norm(x)

    def _sights(
        self, positions: Int[Tensor, "#batch seq"], documents: Int[Tensor, "batch seq"] | None, x: Tensor
    ) -> Mapping[int | None, tuple[Rotary | None, Mask | None]]:
        """Returns turns by positions and what tokens see, by the window of layers; made once for all that share it."""
        sights = {}
        for window in {self.spec.window_of(layer): None for layer in range(self.spec.layers)}:
            table = self.rotary if window is None else self.window_rotary
            rotary = None if table is None else table(positions, x.dtype, tokens=x.shape[1])
            sights[window] = rotary, seen_both_ways(documents, x, window=window)
        return sights

    def _embedded(
        self, tokens: Int[Tensor, "batch seq"], positions: Int[Tensor, "#batch seq"]
    ) -> Float[Tensor, "batch seq width"]:
        x = F.embedding(tokens, self.embedding).to(self.compute_dtype)
        if self.segments is not None:
            x = x + self.segments[0].to(x.dtype)
        if self.positions is not None:
            x = x + F.embedding(positions + self.spec.extra_positions, self.positions).to(x.dtype)
        return self.embedding_norm(x)

    def head_input(self, hidden: Tensor) -> Tensor:
        """Returns what the head's matrix multiplies: hidden states through the pooler, or through the transform.

        Raises:
            ValueError: there is no head.
        """
        if not self.spec.classes and not self.spec.makes_logits:
            raise ValueError("this encoder has no head")
        if self.pooler is not None:
            hidden = torch.tanh(self.pooler(hidden))
        if self.transform is not None and self.transform_norm is not None:
            hidden = self.transform_norm(F.gelu(self.transform(hidden)))
        return hidden

    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields first values, from a generator that the seed keys.

        Matrices are normal with ``INIT_STD`` (Devlin et al., 2018); norms are one, biases zero. With norms before
        sub-layers, what these write into the stream is scaled by 1/sqrt(2 layers), as in a decoder.
        """
        added = () if self.spec.post_norm else ("out.weight", "down.weight")

        def deviation(name: str) -> float:
            return INIT_STD / (math.sqrt(2 * self.spec.layers) if added and name.endswith(added) else 1)

        return normal(self.shapes, seed, deviation)
