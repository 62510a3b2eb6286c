"""What our own optimizers have in common: a step that goes from tensor to tensor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainwright.runtime.norms import local

CHUNK_ELEMENTS = 1 << 18
"""Elements whose temporaries are there at once on a processor: they stay in a cache."""
LAUNCHED_ELEMENTS = 1 << 24
"""The same on an accelerator: kernels that take longer than their launch, and 64 MiB for each temporary."""


class ByTensor(Optimizer, ABC):
    """An optimizer that updates one tensor after the other."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update what has a gradient; ``closure`` computes gradients first, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, group, number)
                number += 1
        return loss

    @abstractmethod
    def update(self, parameter: Tensor, grad_of: Tensor, group: dict[str, Any], number: int) -> None:
        """Update one tensor with its gradient, which may be overwritten; ``number`` is its place among all."""

    def zeros(self, parameter: Tensor, *names: str) -> None:
        """Begin states that are laid out as their parameter is."""
        for name in names:
            self.state[parameter][name] = torch.zeros_like(parameter)


def elements_at_once(tensor: Tensor) -> int:
    """Returns how many elements are computed at a time where a tensor lies."""
    return CHUNK_ELEMENTS if tensor.device.type == "cpu" else LAUNCHED_ELEMENTS


def chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yields parts of what lies here of tensors that are laid out alike, to be written to in place.

    All are contiguous, as a network makes its parameters.
    """
    size = elements_at_once(tensors[0])
    return zip(*(local(tensor).reshape(-1).split(size) for tensor in tensors), strict=True)
