"""The decoder-only transformer, built from a ``ModelSpec``.

Shape legend: ``batch``, ``seq`` (tokens), ``stream`` (of them those here), ``width``, ``outputs`` (of the head).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainwright.core.registry import load
from trainwright.model.attention import Attention, Context, Mask, MaskedKernel, seen_tokens
from trainwright.model.layers import Linear, make_feed_forward, make_norm
from trainwright.model.network import Network, unbuilt
from trainwright.model.parts.initial import normal
from trainwright.model.parts.rotary import Rotary, RotaryTable
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import KernelChoice, Recompute

if TYPE_CHECKING:
    from trainwright.model.cache import KVCache
    from trainwright.model.dropout import Draw
    from trainwright.model.experts.balance import Share
    from trainwright.model.parts.alibi import Alibi

SELECTIVE = "trainwright.model.recompute:options_of"
ALIBI = "trainwright.model.parts.alibi:alibi_of"
LATENT = "trainwright.model.parts.latent:LatentAttention"
BALANCED = "trainwright.model.experts.update"
DROPOUTS = "trainwright.model.dropout:Dropouts"
MASKED = {"flex": "trainwright.model.kernels.flex:flex", "fa3": "trainwright.model.kernels.flash3:flash3"}
"""What makes a kernel that is told what tokens see, by its name (``MASKED_KERNELS``)."""
INIT_STD = 0.02
"""Standard deviation of initial weights (Radford et al., 2019)."""


_BUILT: Mapping[str, tuple[object, ...]] = {
    "kind": ("decoder",),
    "positions": ("rope", "learned", "alibi"),
    "pooling": ("first",),
    "convolutions": (None,),
    **dict.fromkeys(("first_norm", "final_norm"), (True,)),
    **dict.fromkeys(("post_norm", "pooler", "head_transform"), (False,)),
    **dict.fromkeys(("further_layers", "segments", "image_size", "patch_size"), (0,)),
}
"""Fields of ``ModelSpec`` with the values that this network computes, whatever the other fields are."""


def refusals(spec: ModelSpec) -> tuple[str, ...]:
    """Returns why this decoder is not the network that the spec describes, a line for each field; empty where it is."""
    norms = (1, 2) if spec.parallel_residual else (2, 4)
    head = (None, not spec.classes)
    return unbuilt("the decoder", spec, {**_BUILT, "norms_per_block": norms, "language_head": head})


class Given(NamedTuple):
    """What a pass is given of its sequences; see ``Network.forward``."""

    tokens: Tensor
    positions: Int[Tensor, "#batch seq"]
    documents: Int[Tensor, "batch seq"] | None
    cache: KVCache | None
    places: Int[Tensor, " seq"] | None


class Sight(NamedTuple):
    """What attention of layers with one window is told in one pass: positions, and what each token sees."""

    rotary: Rotary | None
    mask: Mask | MaskedKernel | None
    context: Context | None


def make_attention(spec: ModelSpec, layer: int) -> Attention:
    """Returns the attention of a layer."""
    if spec.latent is None:
        return Attention(spec, layer)
    latent: Attention = load(LATENT, kind="attention")(spec, layer)
    return latent


class Block(nn.Module):
    """Pre-norm attention, then pre-norm feed-forward, each added to the residual stream.

    With four norms in a block what each of them returns is normalised too before it is added (Gemma 2).
    """

    recomputed: bool = False

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.mixes = spec.mixes(layer)
        self.residual_scale = spec.scales.residual
        self.attention_norm = make_norm(spec)
        self.attention = make_attention(spec, layer)
        self.attention_out_norm = make_norm(spec) if spec.norms_per_block == 4 else None
        # One norm is for both halves.
        self.ffn_norm = make_norm(spec) if spec.norms_per_block > 1 else None
        self.ffn = make_feed_forward(spec, layer)
        self.ffn_out_norm = make_norm(spec) if spec.norms_per_block == 4 else None

    def forward(
        self,
        x: Float[Tensor, "batch stream width"],
        rotary: Rotary | None,
        mask: Mask | MaskedKernel | None,
        cache: KVCache | None,
        draw: Draw | None = None,
        *,
        context: Context | None = None,
        share: Share | None = None,
    ) -> Float[Tensor, "batch stream width"]:
        """Both sub-layers in turn; ``share`` is what experts are told of the pass's place in its update."""
        normed = self.attention_norm(x)
        result = self.attention(normed, rotary=rotary, mask=mask, cache=cache, draw=draw, context=context)
        x = self._added(x, result, self.attention_out_norm)
        assert self.ffn_norm is not None
        result = self._fed(self.ffn_norm(x), share)
        result = result if draw is None else draw.ffn_output(result, self.layer)
        return self._added(x, result, self.ffn_out_norm)

    def _fed(self, normed: Tensor, share: Share | None) -> Tensor:
        """Returns what the feed-forward makes of the stream."""
        fed: Tensor = self.ffn(normed, share) if self.mixes else self.ffn(normed)
        return fed

    def _added(self, x: Tensor, result: Tensor, norm: nn.Module | None) -> Tensor:
        """Returns the stream and what a sub-layer returned."""
        result = result if norm is None else norm(result)
        return x + (result if self.residual_scale == 1 else result * self.residual_scale)


class ParallelBlock(Block):
    """Attention and feed-forward side by side: both read the stream that enters (GPT-J; Wang and Komatsuzaki, 2021)."""

    def forward(
        self,
        x: Float[Tensor, "batch stream width"],
        rotary: Rotary | None,
        mask: Mask | MaskedKernel | None,
        cache: KVCache | None,
        draw: Draw | None = None,
        *,
        context: Context | None = None,
        share: Share | None = None,
    ) -> Float[Tensor, "batch stream width"]:
        """Both sub-layers, and their sum added to the stream."""
        normed = self.attention_norm(x)
        mixed = self.attention(normed, rotary=rotary, mask=mask, cache=cache, draw=draw, context=context)
        result = self._fed(normed if self.ffn_norm is None else self.ffn_norm(x), share)
        result = result if draw is None else draw.ffn_output(result, self.layer)
        return self._added(x, mixed + result, None)


class Decoder(Network):
    """The decoder-only transformer; its head gives logits over the vocabulary, or over ``spec.classes``.

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
        self.share: Share | None = None
        drops = load(DROPOUTS, kind="dropout") if spec.dropout else None
        self.dropouts = None if drops is None else drops(spec.dropout, spec.layers)
        self.context_of: Callable[..., Context] | None = None
        self.context_ranks = 1
        self.masked_kernel_of: Callable[..., MaskedKernel] | None = None
        self.embedding = nn.Parameter(torch.empty(spec.vocabulary, spec.width))
        learned = spec.positions == "learned"
        rows = spec.context_tokens + spec.extra_positions
        self.positions = nn.Parameter(torch.empty(rows, spec.width)) if learned else None
        self.embedding_norm = make_norm(spec) if spec.embedding_norm else None
        exact = torch.promote_types(dtype, torch.float32)
        rotates = spec.positions == "rope"
        self.rotary = RotaryTable(spec, dtype=exact) if rotates else None
        own = spec.window_rope_theta is not None and rotates
        self.window_rotary = RotaryTable(spec, windowed=True, dtype=exact) if own else None
        self.alibi: Alibi | None = load(ALIBI, kind="positions")(spec) if spec.positions == "alibi" else None
        block = ParallelBlock if spec.parallel_residual else Block
        self.blocks = nn.ModuleList(block(spec, layer) for layer in range(spec.layers))
        self.recompute_in(0 if recompute == "none" else spec.layers)
        self.norm = make_norm(spec)
        shares_embedding = spec.tied and not spec.classes
        outputs = spec.classes or spec.vocabulary
        self.head = None if shares_embedding else Linear(spec.width, outputs, bias=spec.token_classes)
        has_bias = spec.head_bias and not spec.classes
        self.head_bias = nn.Parameter(torch.empty(spec.vocabulary)) if has_bias else None

    @property
    def head_weight(self) -> Float[Tensor, "outputs width"]:
        """Returns the head's matrix; the embedding itself where they are tied."""
        return self.embedding if self.head is None else self.head.weight

    @property
    def logit_bias(self) -> Float[Tensor, " outputs"] | None:
        """Returns the bias of the language head, or of the classes of tokens, where there is one."""
        return self.head_bias if self.head is None or self.head.bias is None else self.head.bias

    def tables(self) -> dict[str, nn.Parameter]:
        """Returns the embedding, and the positions where they are learned."""
        named = {"embedding": getattr(self, "embedding", None), "positions": self.positions}
        return {name: table for name, table in named.items() if table is not None}

    def recompute_in(self, count: int) -> None:
        """Compute so many blocks again, spread evenly, so that every stage of a pipeline has its part of them."""
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            block.recomputed = (layer + 1) * count // self.spec.layers > layer * count // self.spec.layers

    def use(self, kernels: KernelChoice) -> None:
        """Take over the kernels of attention and loss."""
        self.kernels = kernels
        made_by = MASKED.get(kernels.attention)
        if made_by is not None and self.alibi is not None:
            raise ValueError(f"attention={kernels.attention} adds nothing to scores, and ALiBi does")
        self.masked_kernel_of = None if made_by is None else load(made_by, kind="kernel")
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
    ) -> Float[Tensor, "batch stream width"]:
        """Returns normalised hidden states; see ``Network.forward``."""
        dropouts = self.dropouts if self.training else None
        draw = None if dropouts is None else dropouts.draw(tokens, samples, places)
        if positions is None:
            here = torch.arange(self.whole_tokens(tokens), device=tokens.device) if places is None else places
            positions = here.unsqueeze(0)
        x = tokens
        if part is None or part.start == 0:
            x = self.embedded(tokens, positions)
            x = x if self.spec.scales.embedding == 1 else x * self.spec.scales.embedding
            x = x if self.embedding_norm is None else self.embedding_norm(x)
            x = x if draw is None else draw.embedded(x)
        share = self.share if self.training else None
        sights = self._sights(Given(tokens, positions, documents, cache, places), x.dtype)
        for block in self.blocks if part is None else [self.blocks.get_submodule(str(number)) for number in part]:
            assert isinstance(block, Block)
            rotary, mask, context = sights[self.spec.window_of(block.layer)]
            if block.recomputed and self.training:
                again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
                # torch.compile takes no contexts that do nothing: where all is made again none are given.
                kept = {} if self._selective is None else self._selective(block)
                x = again(block, x, rotary, mask, cache, draw, context=context, share=share, **kept)
            else:
                x = block(x, rotary, mask, cache, draw, context=context, share=share)
        return self.norm(x) if part is None or part.stop == self.spec.layers else x

    def _sights(self, given: Given, dtype: torch.dtype) -> Mapping[int | None, Sight]:
        """Returns what layers are told, by their window.

        Made once: torch would turn a Boolean mask into numbers of this dtype in every layer, and keep each of them.
        """
        tokens, positions, documents, cache, places = given
        whole = self.whole_tokens(tokens)
        here: dict[str, Any] = {"keys": whole, "device": tokens.device}
        reach = whole * self.context_ranks if cache is None else cache.max_tokens
        rotary = None if self.rotary is None else self.rotary(positions, dtype, tokens=reach)
        sights = {}
        for window in {self.spec.window_of(layer): None for layer in range(self.spec.layers)}:
            turned = rotary
            if window is not None and self.window_rotary is not None:
                turned = self.window_rotary(positions, dtype, tokens=reach)
            context: Context | None = None
            mask: Mask | MaskedKernel | None = None
            if self.context_of is not None and places is not None:
                context = self.context_of(documents, places, dtype, window=window)
            elif cache is not None:
                mask = cache.mask(window)
            elif self.masked_kernel_of is not None:
                mask = self.masked_kernel_of(documents, first=0, window=window, **here)
            else:
                mask = seen_tokens(documents, dtype, first=0, window=window, **here)
            if self.alibi is not None and context is None:
                assert mask is None or isinstance(mask, Tensor), "``use`` refuses other kernels"
                # Distances are the same in a document and in the sequence that it stands in.
                queries = torch.arange(whole, device=tokens.device)[None] if cache is None else positions
                keys = whole if cache is None else cache.visible_tokens
                mask = self.alibi.mask(mask, queries, keys=keys, dtype=dtype)
            sights[window] = Sight(turned, mask, context)
        return sights

    def before_update(self, of_sequence: Tensor) -> None:
        """Lets experts balance: with a bias, and by a loss of each sequence."""
        if self.spec.experts is not None:
            self.share = load(f"{BALANCED}:begun", kind="experts")(self, of_sequence)

    def counts_sequences(self, number: int) -> None:
        """Says it to experts."""
        if self.share is not None:
            self.share = load(f"{BALANCED}:of_first", kind="experts")(self.share, number)

    def after_update(self, add_up: Callable[[Tensor], Tensor], *, made: bool) -> Mapping[str, Tensor]:
        """Moves the biases of experts by their load, and returns how uneven it was."""
        if self.spec.experts is None:
            return {}
        measured: Mapping[str, Tensor] = load(f"{BALANCED}:ended", kind="experts")(self, add_up, made=made)
        return measured

    def embedded(
        self, tokens: Int[Tensor, "batch seq"], positions: Int[Tensor, "#batch seq"]
    ) -> Float[Tensor, "batch stream width"]:
        """Returns what tokens are, and where they stand in their document where a table says that."""
        x = F.embedding(tokens, self.embedding).to(self.compute_dtype)
        return x if self.positions is None else x + F.embedding(self.rows_of(positions), self.positions).to(x.dtype)

    def rows_of(self, positions: Int[Tensor, "#batch seq"]) -> Int[Tensor, "#batch seq"]:
        """Returns the rows of the table of positions: the first ``extra_positions`` stand for none."""
        return positions + self.spec.extra_positions if self.spec.extra_positions else positions

    def whole_tokens(self, stream: Tensor) -> int:
        """Returns how many tokens the sequences have of which these are token ids or hidden states."""
        return stream.shape[1]

    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields first values, from a generator that the seed keys.

        Matrices are normal with ``INIT_STD``; those that write into the residual stream are scaled by
        1/sqrt(2 layers) (Radford et al., 2019); norms multiply by one, biases are zero.
        """
        residual_std = INIT_STD / math.sqrt(2 * self.spec.layers)

        def deviation(name: str) -> float:
            return residual_std if name.endswith(("out.weight", "down.weight")) else INIT_STD

        return normal(self.shapes, seed, deviation, norm=1.0 - self.spec.norm_offset)
