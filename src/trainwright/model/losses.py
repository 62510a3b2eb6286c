"""Losses return ``(sum, weight)``: the caller divides by one denominator for the whole batch.

So micro batches of any size, ragged tails and every parallel layout give the same gradient.

Shape legend: ``tokens`` (positions with or without a target), ``width``, ``vocabulary``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.core.registry import load
from trainwright.planner.counts.pieces import chunk_tokens, loss_rows, padded_rows
from trainwright.spec.workload import LossChunk

Loss = tuple[Float[Tensor, ""], Int[Tensor, ""]]
"""Summed loss in nats, and its weight: how many targets it sums over."""

IGNORE = -100
"""A target that counts for nothing."""

HALF = "trainwright.model.precision.half:add_gradients"


class Gradients(NamedTuple):
    """Where the gradients of a chunk go: of its hidden states, of the whole head, and of its bias.

    The last two are None where there is none, or where it is frozen. ``factors`` multiply each row's part in all three.
    """

    hidden: Tensor
    weight: Tensor | None
    bias: Tensor | None
    factors: Float[Tensor, " rows"] | None = None


class Head(NamedTuple):
    """The output matrix in the dtype of products, a bias or None, and a soft bound c of logits or None.

    Of its rows the first ``entries`` are entries: those after them are zeros without a logit. With a bound a logit
    is c tanh(logit / c) (Gemma 2, arXiv 2408.00118, section 2).
    """

    weight: Float[Tensor, "rows width"]
    entries: int
    bias: Float[Tensor, " entries"] | None = None
    cap: float | None = None

    def logits(self, part: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch entries"]:
        """Returns logits in fp32, or in fp64 where the caller checks gradients in fp64."""
        logits = F.linear(part, self.weight)[..., : self.entries].to(torch.promote_types(part.dtype, torch.float32))
        logits = logits if self.bias is None else logits + self.bias
        return capped(logits, self.cap)

    def uncapped(self, grad: Tensor, logits: Tensor | None) -> Tensor:
        """Returns in place the gradient of logits before their bound, from that of ``logits``, which are bounded."""
        return grad if self.cap is None or logits is None else grad.mul_(1 - (logits / self.cap).square_())


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """Returns logits with the soft bound ``cap``; None: as they are."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


ChunkLoss = Callable[[Tensor, Head, Tensor, Gradients | None], Tensor]
"""Takes hidden states, the head, targets, and where gradients go; returns the summed loss of a chunk."""


class _LinearCrossEntropy(torch.autograd.Function):
    """Projection to the vocabulary and cross-entropy in one, a chunk of tokens at a time.

    The gradient of a sum of cross-entropies needs only ``softmax - onehot``, known as soon as the logits are, so it is
    taken in the forward pass while the chunk is at hand: three matrix products, or two with a frozen head, and never
    more logits than a chunk.
    """

    @staticmethod
    def forward(  # noqa: PLR0917  # autograd hands arguments over by place
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        with_grad: bool,
        size: int,
        chunk_loss: ChunkLoss,
        multiple: int,
        cap: float | None,
        factors: Tensor | None,
    ) -> Float[Tensor, ""]:
        head = Head(filled_up(weight, 0, multiple, hidden.dtype), weight.shape[0], bias, cap)
        # Sums are fp32, and fp64 where the caller checks gradients in fp64.
        exact = torch.promote_types(hidden.dtype, torch.float32)
        total = hidden.new_zeros((), dtype=exact)
        grad_hidden = torch.empty_like(hidden) if with_grad else None
        _, of_weight, of_bias, *_ = ctx.needs_input_grad
        grad_weight = torch.zeros_like(weight, dtype=exact) if with_grad and of_weight else None
        grad_bias = torch.zeros_like(bias, dtype=exact) if with_grad and of_bias and bias is not None else None
        for start in range(0, hidden.shape[0], size):
            rows = slice(start, start + size)
            grads = None
            if grad_hidden is not None:
                of_rows = None if factors is None else factors[rows]
                grads = Gradients(grad_hidden[rows], grad_weight, grad_bias, of_rows)
            total += chunk_loss(hidden[rows], head, targets[rows], grads)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        scale, none = grads[0], (None,) * 7
        of_bias = None if grad_bias is None else grad_bias * scale
        # In place, for the head's gradient is as large as the head; a pipeline's split backward pass comes here twice.
        times = torch.mul if _keeps_graph() else Tensor.mul_
        of_weight = None if grad_weight is None else times(grad_weight, scale)
        return times(grad_hidden, scale.to(grad_hidden.dtype)), of_weight, of_bias, *none


def _keeps_graph() -> bool:
    """Returns whether the backward pass under way may be followed by another one over the same graph."""
    keeps: bool = torch._C._autograd._get_current_graph_task_keep_graph()  # noqa: SLF001  # AOTAutograd asks so too
    return keeps


def filled_up(matrix: Tensor, dim: int, multiple: int, dtype: torch.dtype) -> Tensor:
    """Returns a matrix in this dtype with zeros after its end in one dim, whose size is then a multiple."""
    shape = list(matrix.shape)
    shape[dim] = padded_rows(matrix.shape[dim], multiple)
    if shape[dim] == matrix.shape[dim]:
        return matrix.to(dtype)
    wide = matrix.new_zeros(shape, dtype=dtype)
    wide.narrow(dim, 0, matrix.shape[dim]).copy_(matrix)
    return wide


def _chunk_loss(part: Tensor, head: Head, target: Tensor, grads: Gradients | None) -> Tensor:
    """Summed loss of one chunk; its gradients go into ``grads``: written to the first, added to the second.

    A function of its own, so that a chunk's logits are gone before the next chunk's are made.
    """
    logits = head.logits(part)
    log_probabilities = F.log_softmax(logits, dim=-1)
    bounded = None if head.cap is None else logits
    del logits
    loss = F.nll_loss(log_probabilities, target, ignore_index=IGNORE, reduction="sum")
    if grads is None:
        return loss
    index = target.clamp_min(0).unsqueeze(1)
    grad = log_probabilities.exp_()
    grad = grad.scatter_add_(1, index, -torch.ones_like(index, dtype=grad.dtype))
    add_gradients(head.uncapped(grad, bounded), part, head.weight, target, grads)
    return loss


PLAIN: ChunkLoss = _chunk_loss
"""Cross-entropy and nothing else."""


def add_gradients(grad: Tensor, part: Tensor, head: Tensor, target: Tensor, grads: Gradients) -> None:
    """Leaves in ``grads`` what a chunk's gradient of logits, for fp16 in fp32, means for hidden states and head."""
    grad_part, grad_weight, grad_bias, factors = grads
    weights = (target != IGNORE).unsqueeze(1)
    weights = weights if factors is None else weights * factors.unsqueeze(1)
    if grad_bias is not None:
        grad_bias += (grad * weights).sum(dim=0)
    half = part.dtype is torch.float16
    grad = filled_up(grad, 1, head.shape[0], grad.dtype if half else part.dtype)
    counts = weights.to(part.dtype)
    if half:
        load(HALF, kind="precision")(grad, part * counts, head, counts, (grad_part, grad_weight))
        return
    # Targets that do not count are zeroed on the narrow side of each product.
    torch.mul(grad @ head, counts, out=grad_part)
    if grad_weight is not None:
        grad_weight += (grad.T @ (part * counts))[: grad_weight.shape[0]]


def linear_cross_entropy(
    hidden: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "vocabulary width"],
    targets: Int[Tensor, " tokens"],
    *,
    bias: Float[Tensor, " vocabulary"] | None = None,
    chunk: LossChunk = "auto",
    entries: int | None = None,
    chunk_loss: ChunkLoss = _chunk_loss,
    multiple: int = 1,
    cap: float | None = None,
    factors: Float[Tensor, " tokens"] | None = None,
) -> Loss:
    """Summed cross-entropy in nats and the number of targets that count.

    Args:
        hidden: normalised hidden states.
        weight: the output matrix.
        targets: next tokens; ``IGNORE`` counts for nothing.
        bias: added to logits; None: nothing is.
        chunk: tokens whose logits are made at a time.
        entries: of the vocabulary, for which ``auto`` chooses the chunk; None: the rows of ``weight``.
        chunk_loss: computes a chunk, where the head's rows lie on several ranks.
        multiple: the head has so many rows in products, or twice, three times as many; what is beyond is zeros.
        cap: soft bound of logits; None: there is none.
        factors: the gradient is that of the sum of ``factors * cross-entropies``, and the value stays the plain sum.
    """
    trained = hidden.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    with_grad = torch.is_grad_enabled() and trained
    size = loss_rows(chunk, tokens=hidden.shape[0], vocabulary=entries or weight.shape[0])
    total = _LinearCrossEntropy.apply(
        hidden, weight, bias, targets, with_grad, size, chunk_loss, multiple, cap, factors
    )
    return total, (targets != IGNORE).sum()


def token_cross_entropy(
    hidden: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "vocabulary width"],
    targets: Int[Tensor, " tokens"],
    bias: Float[Tensor, " vocabulary"] | None = None,
    *,
    cap: float | None = None,
) -> Float[Tensor, " tokens"]:
    """Cross-entropy of each token; logits are made a chunk at a time, as in training, and never all at once."""
    head = Head(weight.to(hidden.dtype), weight.shape[0], bias, cap)
    pieces = zip(*(values.split(chunk_tokens(weight.shape[0])) for values in (hidden, targets)), strict=True)
    pairs = ((head.logits(h), t) for h, t in pieces)
    return torch.cat([F.cross_entropy(logits, t, ignore_index=IGNORE, reduction="none") for logits, t in pairs])
