"""Update rules that treat each element by itself, so that any shard of a tensor is updated as in the whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainwright.model.optimizers.base import ByTensor, chunks
from trainwright.runtime.norms import local


class Sgd(ByTensor):
    """Gradient descent with the momentum of torch's, whose first step is the gradient (Sutskever et al., 2013).

    State is ``momentum_buffer``; without momentum none. It makes no temporary: torch's own begins its buffer with
    memory that nobody filled where a kernel is told to leave out the first update.

    Args:
        params: groups, as torch's optimizers take them.
        lr: learning rate.
        momentum: share of the former step.
        nesterov: look ahead by the momentum.
        weight_decay: L2 penalty, a part of the gradient.
    """

    def __init__(
        self, params: Any, *, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(params, settings)

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place; its gradient is overwritten."""
        weight, grad = local(parameter), local(grad_of)
        if group["weight_decay"]:
            grad.add_(weight, alpha=group["weight_decay"])
        if group["momentum"]:
            if not self.state[parameter]:
                self.zeros(parameter, "momentum_buffer")
            buffer = local(self.state[parameter]["momentum_buffer"])
            buffer.mul_(group["momentum"]).add_(grad)
            grad = grad.add_(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        weight.add_(grad, alpha=-group["lr"])


class Lion(ByTensor):
    """The sign of a mean of gradients (Chen et al., 2023, arXiv 2302.06675, program 1), with decoupled decay.

    State is ``exp_avg``.

    Args:
        params: groups, as torch's optimizers take them.
        lr: learning rate.
        betas: share of the state in what is stepped along, and in the next state.
        weight_decay: decoupled, in units of the learning rate.
    """

    def __init__(
        self, params: Any, *, lr: float, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place."""
        if not self.state[parameter]:
            self.zeros(parameter, "exp_avg")
        rate, (beta1, beta2) = group["lr"], group["betas"]
        for weight, grad, mean in chunks(parameter.detach(), grad_of, self.state[parameter]["exp_avg"]):
            weight.mul_(1 - rate * group["weight_decay"])
            weight.add_(torch.lerp(mean, grad, 1 - beta1).sign_(), alpha=-rate)
            mean.lerp_(grad, 1 - beta2)


class ScheduleFreeAdamW(ByTensor):
    """AdamW whose weights are averaged in place of a decaying rate (Defazio et al., 2024, arXiv 2405.15682).

    Of the paper's three sequences (algorithm 1) a parameter is y, where gradients are computed, and the state has z,
    which takes the steps; x, the average, is what both say it is, and what a run ends in. State is ``z``,
    ``exp_avg_sq``, ``step``, and ``rates``, the sum of the squared rates so far.

    Args:
        params: groups, as torch's optimizers take them.
        lr: learning rate; its warm-up is the run's.
        betas: share of x in y, which is above zero, and averaging of the squared gradient.
        eps: epsilon.
        weight_decay: of y, in units of the learning rate.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor in place."""
        state = self.state[parameter]
        if not state:
            state["step"], state["rates"] = torch.zeros(()), torch.zeros((), dtype=torch.float64)
            state["z"] = parameter.detach().clone()
            self.zeros(parameter, "exp_avg_sq")
        state["step"] += 1
        beta1, beta2 = group["betas"]
        rate = group["lr"] * (1 - beta2 ** int(state["step"])) ** 0.5
        state["rates"] += rate**2
        share = rate**2 / float(state["rates"]) if rate else 0.0
        # y = (1 - beta1) z + beta1 x before and after, with x moved towards the new z by its share.
        beyond = -rate * (1 - share) * (1 - beta1)
        for y, grad, z, square in chunks(parameter.detach(), grad_of, state["z"], state["exp_avg_sq"]):
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            step = torch.div(grad, square.sqrt().add_(group["eps"])).add_(y, alpha=group["weight_decay"])
            z.add_(step, alpha=-rate)
            y.lerp_(z, share).add_(step, alpha=beyond)

    def averaged(self, parameter: Tensor) -> Tensor:
        """Returns x of a parameter, laid out as it is; itself where it was never updated."""
        state = self.state.get(parameter)
        if not state:
            return parameter.detach()
        beta1 = next(
            group["betas"][0] for group in self.param_groups if any(each is parameter for each in group["params"])
        )
        average = parameter.detach().clone()
        local(average).lerp_(local(state["z"]), 1 - 1 / beta1)
        return average
