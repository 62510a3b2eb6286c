"""The decoder-only transformer, built from a ``ModelSpec``.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``vocabulary``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainwright.model.attention import Attention, Mask, Rotary, RotaryTable, document_mask
from trainwright.model.cache import KVCache
from trainwright.model.layers import Linear, make_feed_forward, make_norm
from trainwright.spec.model import ModelSpec

INIT_STD = 0.02
"""Standard deviation of initial weights (Radford et al., 2019)."""


class Block(nn.Module):
    """Pre-norm attention, then pre-norm feed-forward, each added to the residual stream."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.attention_norm = make_norm(spec)
        self.attention = Attention(spec, layer)
        self.ffn_norm = make_norm(spec)
        self.ffn = make_feed_forward(spec)

    def forward(
        self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None, mask: Mask | None, cache: KVCache | None
    ) -> Float[Tensor, "batch seq width"]:
        """Both sub-layers in turn."""
        x = x + self.attention(self.attention_norm(x), rotary=rotary, mask=mask, cache=cache)
        return x + self.ffn(self.ffn_norm(x))


class Decoder(nn.Module):
    """Tokens to hidden states; ``logits`` (or a fused loss over ``head_weight``) does the rest.

    Parameters are fp32; ``compute_dtype`` is what activations and matrix products use.

    Raises:
        ValueError: the spec describes no network (its ``problems``).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        problems = spec.problems()
        if problems:
            raise ValueError("; ".join(problems))
        self.spec = spec
        self.compute_dtype = torch.float32
        self.recompute = False
        self.embedding = nn.Parameter(torch.empty(spec.vocabulary, spec.width))
        learned = spec.positions == "learned"
        self.positions = nn.Parameter(torch.empty(spec.context_tokens, spec.width)) if learned else None
        self.rotary = None if learned else RotaryTable(spec)
        self.blocks = nn.ModuleList(Block(spec, layer) for layer in range(spec.layers))
        self.norm = make_norm(spec)
        self.head = None if spec.tied else Linear(spec.width, spec.vocabulary, bias=False)

    @property
    def head_weight(self) -> Float[Tensor, "vocabulary width"]:
        """The output matrix: the embedding itself where they are tied."""
        return self.embedding if self.head is None else self.head.weight

    def forward(
        self,
        tokens: Int[Tensor, "batch seq"],
        *,
        positions: Int[Tensor, "#batch seq"] | None = None,
        documents: Int[Tensor, "batch seq"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch seq width"]:
        """Normalised hidden states.

        Args:
            tokens: token ids.
            positions: where each token stands in its document; 0, 1, 2... when None.
            documents: an id per token; where given, no token attends to another document.
            cache: earlier keys and values; the caller has selected slots and ``positions`` in it.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = F.embedding(tokens, self.embedding).to(self.compute_dtype)
        if self.positions is not None:
            x = x + F.embedding(positions, self.positions).to(x.dtype)
        rotary = None if self.rotary is None else self.rotary(positions, x.dtype)
        mask = cache.mask() if cache is not None else None if documents is None else document_mask(documents)
        for block in self.blocks:
            if self.recompute and self.training:
                x = checkpoint(block, x, rotary, mask, cache, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, rotary, mask, cache)
        return self.norm(x)

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """Unnormalised log-probabilities of the next token, in fp32."""
        return F.linear(hidden, self.head_weight.to(hidden.dtype)).float()

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Fill every parameter from a generator of its own, keyed by the seed and the parameter's name order.

        Matrices are normal with ``INIT_STD``; those that write into the residual stream are scaled by
        1/sqrt(2 layers) (Radford et al., 2019); norms are one, biases zero.
        """
        generator = torch.Generator().manual_seed(seed)
        residual_std = INIT_STD / math.sqrt(2 * self.spec.layers)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1.0)
            else:
                std = residual_std if name.endswith(("out.weight", "down.weight")) else INIT_STD
                values = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_(values.mul_(std))
