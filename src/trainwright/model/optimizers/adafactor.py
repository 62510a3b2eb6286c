"""Adafactor (Shazeer and Stern, 2018, arXiv 1804.04235): squares of a matrix as the means of its rows and columns.

The learning rate is the recipe's, in place of the paper's that falls with the step and follows the size of weights
(its sections 7 and 8); there is no momentum. Means are over whole matrices, so that shards of rows are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.model.optimizers.base import ByTensor
from trainwright.runtime.cuts import cut_of
from trainwright.runtime.norms import local


class Adafactor(ByTensor):
    """Algorithms 4 and 5 of the paper, with clipped updates and decoupled decay.

    State of a tensor of two dims or more is ``row`` [..., rows, 1] and ``column`` [..., 1, columns], of a vector
    ``square``, and ``step``. It makes no temporary of a tensor's size: the gradient becomes the update.

    Args:
        params: groups, as torch's optimizers take them.
        lr: learning rate.
        decay_rate: older squares count ``1 - step**decay_rate`` of what they did.
        clip_threshold: largest root mean square of a tensor's update, before the rate.
        eps: added to squares.
        weight_decay: decoupled, in units of the learning rate.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        decay_rate: float = -0.8,
        clip_threshold: float = 1.0,
        eps: float = 1e-30,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"lr": lr, "decay_rate": decay_rate, "clip_threshold": clip_threshold}
        super().__init__(params, settings | {"eps": eps, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place; its gradient is overwritten.

        Raises:
            ValueError: this process has a part of it alone.
        """
        weight, grad, state = local(parameter.detach()), local(grad_of), self.state[parameter]
        cut = cut_of(parameter)
        if weight.shape != parameter.shape or (cut is not None and cut.shape != cut.whole):
            raise ValueError(f"Adafactor needs whole matrices, and has {tuple(weight.shape)} of a larger one")
        if not state:
            state["step"] = torch.zeros(())
            for name, shape in _shapes(weight).items():
                state[name] = weight.new_zeros(shape)
        state["step"] += 1
        older = 1.0 - int(state["step"]) ** group["decay_rate"]
        for name, means in _means(grad).items():
            state[name].lerp_(means.add_(group["eps"]), 1 - older)
        if "square" in state:
            grad.mul_(state["square"].rsqrt())
        else:
            row = state["row"]
            grad.mul_((row / row.mean(dim=-2, keepdim=True)).rsqrt_()).mul_(state["column"].rsqrt())
        size = torch.linalg.vector_norm(grad) / grad.numel() ** 0.5
        grad.div_((size / group["clip_threshold"]).clamp_min(1.0))
        weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(grad, alpha=-group["lr"])


def _shapes(weight: Tensor) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a tensor's state."""
    if weight.ndim < 2:
        return {"square": tuple(weight.shape)}
    *before, rows, columns = weight.shape
    return {"row": (*before, rows, 1), "column": (*before, 1, columns)}


def _means(grad: Tensor) -> dict[str, Tensor]:
    """Returns the means of squares that the state follows, without a square of the whole gradient."""
    if grad.ndim < 2:
        return {"square": grad.square()}
    rows, columns = grad.shape[-2:]
    return {
        "row": torch.linalg.vector_norm(grad, dim=-1, keepdim=True).square_().div_(columns),
        "column": torch.linalg.vector_norm(grad, dim=-2, keepdim=True).square_().div_(rows),
    }
