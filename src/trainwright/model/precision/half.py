"""The loss's gradients in fp16, whose range is small: factors of two keep them inside, and are taken out again.

Of a vocabulary of 50,000 most probabilities are below 6e-5, from which on fp16 has fewer bits; and the gradient of an
entry of the head is a sum over all rows of a chunk that have it as their target.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIFT = 1024.0
"""What gradients of logits are multiplied by."""


def add_gradients(
    grad: Tensor, part: Tensor, head: Tensor, counts: Tensor, grads: tuple[Tensor, Tensor | None]
) -> None:
    """As ``model.losses.add_gradients``.

    Args:
        grad: of a chunk's logits, in fp32; its values change.
        part: the chunk's hidden states, 0 where a target does not count.
        head: in fp16, with rows of zeros where it is filled up.
        counts: 1 where a target counts, else 0, a row each.
        grads: of hidden states, and of the head; None of a frozen one.
    """
    grad_part, grad_weight = grads
    grad = grad.mul_(LIFT).to(part.dtype)
    torch.mul(grad @ head, counts / LIFT, out=grad_part)
    if grad_weight is None:
        return
    less = LIFT * 2.0 ** max(0, part.shape[0].bit_length() - 9)
    grad_weight.add_((grad.T @ (part / less))[: grad_weight.shape[0]], alpha=less / LIFT)
