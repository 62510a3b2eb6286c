"""Losses return ``(sum, weight)``: the caller divides by one denominator for the whole batch.

So micro batches of any size, ragged tails and every parallel layout give the same gradient.

Shape legend: ``tokens`` (positions with or without a target), ``width``, ``vocabulary``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

IGNORE = -100
"""A target that counts for nothing."""

CHUNK_BYTES = 16 << 20
"""Logits are made for about so many bytes (fp32) at a time; small enough to stay in a large cache."""

CHUNK_MIN_TOKENS = 512
"""Each chunk adds to the whole gradient of the head, so chunks must not be small where the head is large: on GPT-2's
head of 50,257 x 768, 1,024 tokens took 862 ms in chunks of 64, 320 ms in chunks of 512 (``benchmarks/kernels.py``)."""


def chunk_tokens(vocabulary: int) -> int:
    """Tokens whose fp32 logits fill ``CHUNK_BYTES``, rounded to a multiple of 64, at least ``CHUNK_MIN_TOKENS``."""
    return max(CHUNK_MIN_TOKENS, CHUNK_BYTES // (4 * vocabulary) // 64 * 64)


class _LinearCrossEntropy(torch.autograd.Function):
    """Projection to the vocabulary and cross-entropy in one, a chunk of tokens at a time.

    The gradient of a sum of cross-entropies needs only ``softmax - onehot``, known as soon as the logits are, so it is
    taken in the forward pass while the chunk is at hand: three matrix products, and never more logits than a chunk.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, with_grad: bool) -> Float[Tensor, ""]:
        head = weight.to(hidden.dtype)
        size = chunk_tokens(weight.shape[0])
        total = hidden.new_zeros((), dtype=torch.float32)
        grad_hidden = torch.empty_like(hidden) if with_grad else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if with_grad else None
        for start in range(0, hidden.shape[0], size):
            rows = slice(start, start + size)
            grads = None if grad_hidden is None or grad_weight is None else (grad_hidden[rows], grad_weight)
            total += _chunk_loss(hidden[rows], head, targets[rows], grads)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        (scale,) = grads
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


def _chunk_loss(part: Tensor, head: Tensor, target: Tensor, grads: tuple[Tensor, Tensor] | None) -> Tensor:
    """Summed loss of one chunk; its gradients go into ``grads``: written to the first, added to the second.

    A function of its own, so that a chunk's logits are gone before the next chunk's are made.
    """
    log_probabilities = F.log_softmax(F.linear(part, head).float(), dim=-1)
    loss = F.nll_loss(log_probabilities, target, ignore_index=IGNORE, reduction="sum")
    if grads is None:
        return loss
    grad_part, grad_weight = grads
    counts = (target != IGNORE).unsqueeze(1).to(part.dtype)
    index = target.clamp_min(0).unsqueeze(1)
    grad = log_probabilities.exp_()
    grad = grad.scatter_add_(1, index, -torch.ones_like(index, dtype=grad.dtype)).to(part.dtype)
    # Targets that do not count are zeroed on the narrow side of each product.
    torch.mul(grad @ head, counts, out=grad_part)
    grad_weight += grad.T @ (part * counts)
    return loss


def linear_cross_entropy(
    hidden: Float[Tensor, "tokens width"], weight: Float[Tensor, "vocabulary width"], targets: Int[Tensor, " tokens"]
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Summed cross-entropy in nats and the number of targets that count.

    Args:
        hidden: normalised hidden states.
        weight: the output matrix.
        targets: next tokens; ``IGNORE`` counts for nothing.
    """
    with_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total = _LinearCrossEntropy.apply(hidden, weight, targets, with_grad)
    return total, (targets != IGNORE).sum()
