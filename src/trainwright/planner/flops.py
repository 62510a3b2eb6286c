"""Floating-point operations of the matrix products, as ``torch.utils.flop_counter.FlopCounterMode`` counts them.

A multiply-add is two operations; only matrix products count. Attention is counted *in full*: the half above the causal
diagonal is included, as in PaLM's definition of model FLOPs utilisation (Chowdhery et al., 2022, appendix B), so that
MFU can be compared with published numbers. ``causal`` leaves that half out: it is what a kernel that skips masked
blocks does.
The backward pass takes two products for each product of the forward pass. Recomputation is never counted as model
FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.planner.parameters import block_matrices
from trainwright.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """Operations of one forward pass over ``sequences`` of ``sequence_tokens``, by component."""

    linear: int
    attention: int
    head: int

    @property
    def forward(self) -> int:
        """Forward pass, attention in full."""
        return self.linear + self.attention + self.head

    @property
    def backward(self) -> int:
        """Backward pass: gradients of both factors of each product."""
        return 2 * self.forward

    @property
    def training(self) -> int:
        """Forward and backward."""
        return self.forward + self.backward

    @property
    def training_causal(self) -> int:
        """Forward and backward with half of attention, as the causal mask leaves it."""
        return self.training - 3 * self.attention // 2


def count_flops(model: ModelSpec, *, sequences: int, sequence_tokens: int) -> Flops:
    """Operations of one forward pass."""
    tokens = sequences * sequence_tokens
    return Flops(
        linear=2 * tokens * model.layers * sum(rows * columns for rows, columns in block_matrices(model)),
        attention=model.layers * sequences * model.heads * 4 * sequence_tokens**2 * model.head_size,
        head=2 * tokens * model.width * model.vocabulary,
    )


def training_flops_per_token(model: ModelSpec, *, sequence_tokens: int) -> float:
    """Model FLOPs of one trained token, attention in full: the numerator of MFU."""
    return count_flops(model, sequences=1, sequence_tokens=sequence_tokens).training / sequence_tokens
