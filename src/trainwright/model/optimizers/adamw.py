"""AdamW (Loshchilov and Hutter, 2019) with moments in bf16: four bytes a parameter in place of eight.

Each update is computed in fp32 from the moments as they are kept, and the new moments are rounded afterwards: the first
step is AdamW's own. The mean of gradients is rounded to the nearest number, which moves it by 2**-9 of itself at most.
The mean of squares is rounded up or down at random so that its expectation is right: what it changes by in a step,
1 - beta2 of itself, may be less than half of the distance between two numbers, and would be lost for ever. The random
bits are a hash of parameter, step and element, so that a run that goes on from a checkpoint ends in the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.model.dropout import mixed_bits
from trainwright.model.optimizers.base import ByTensor, chunks
from trainwright.runtime.rng import derive

_HALF, _WORD = 0xFFFF, 0xFFFFFFFF


class ReducedAdamW(ByTensor):
    """AdamW whose state is ``exp_avg`` and ``exp_avg_sq`` in bf16 and ``step``, for parameters in fp32.

    Args:
        params: groups, as torch's optimizers take them.
        lr: learning rate.
        betas: averaging of the gradient and of its square.
        eps: epsilon.
        weight_decay: decoupled, in units of the learning rate.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        steps = int(state["step"])
        rows = chunks(parameter.detach(), grad_of, state["exp_avg"], state["exp_avg_sq"])
        for start, (weight, grad, mean, square) in enumerate(rows):
            average, squares = moments_after(mean, square, grad, group["betas"])
            move(weight, average, squares, group, steps)
            mean.copy_(average)
            square.copy_(rounded_at_random(squares, derive(number, steps, start)))


def moments_after(mean: Tensor, square: Tensor, grad: Tensor, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Returns both moments after one more gradient, in fp32."""
    average = mean.float().lerp_(grad, 1 - betas[0])
    return average, square.float().mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])


def move(weight: Tensor, average: Tensor, squares: Tensor, group: dict[str, Any], steps: int) -> None:
    """Apply decay and the update to a part of a parameter."""
    rate, (beta1, beta2) = group["lr"], group["betas"]
    weight.mul_(1 - rate * group["weight_decay"])
    scale = squares.div(1 - beta2**steps).sqrt_().add_(group["eps"])
    weight.addcdiv_(average, scale, value=-rate / (1 - beta1**steps))


def rounded_at_random(values: Tensor, key: int) -> Tensor:
    """Returns fp32 numbers of one dim as one of the two bf16 numbers next to each, which it is in the mean.

    ``key`` are 64 bits that decide, with an element's place, which of the two.
    """
    places = torch.arange(values.shape[0], device=values.device)
    noise = mixed_bits(places ^ (key & _WORD), key >> 32 & _WORD) & _HALF
    bits = values.view(torch.int32) + noise.int()
    return (bits & ~_HALF).view(torch.float32).bfloat16()
