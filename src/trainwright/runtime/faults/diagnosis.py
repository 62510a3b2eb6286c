"""Which module first made a number that is not finite, and of which sequences: a step computed again, watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainwright.runtime.norms import local

LOSS = "the loss"


class Step(Protocol):
    """What computes the gradient of a batch."""

    network: Any
    micro_batch: int

    def gradient(self, batch: Any) -> Any:
        """Accumulates it."""

    def loss(self, micro: Any) -> Any:
        """Returns the loss of a micro batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Where a number that is not finite came from.

    Attributes:
        what: a module, "the loss", or a gradient, in words.
        order: how early in the step it was: micro batch, then forward before backward.
        rows: of the process's part of the batch; empty where they are not known.
    """

    what: str
    order: tuple[int, int]
    rows: tuple[int, ...] = ()


class _Watch:
    """Remembers the first number that is not finite in a step."""

    def __init__(self, micro_batch: int) -> None:
        self.micro, self.micro_batch = -1, micro_batch
        self.found: Finding | None = None

    def outputs(self, name: str, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Looks at what a module made, and later at its gradient."""
        del module
        tensors = [each for each in tree_leaves(outputs) if isinstance(each, Tensor) and each.is_floating_point()]
        for tensor in tensors:
            if self.found is None:
                known = all(bool(each.isfinite().all()) for each in tree_leaves(inputs) if _floats(each))
                self.judge(tensor, name if known else f"what enters {name}", 0)
            if tensor.requires_grad:
                tensor.register_hook(partial(self._gradient, name))

    def _gradient(self, name: str, gradient: Tensor) -> None:
        if self.found is None:
            self.judge(gradient, f"the gradient of what {name} made", 1)

    def judge(self, tensor: Tensor, what: str, order: int) -> None:
        """Takes a tensor down where it holds a number that is not finite."""
        finite = local(tensor).detach().isfinite()
        if bool(finite.all()):
            return
        rows: tuple[int, ...] = ()
        if finite.ndim > 1 and self.micro >= 0:
            bad = (~finite).flatten(1).any(1).nonzero().flatten().tolist()
            rows = tuple(self.micro * self.micro_batch + row for row in bad if row < self.micro_batch)
        self.found = Finding(what=what, order=(self.micro, order), rows=rows)


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def first_not_finite(step: Step, batch: Mapping[str, Tensor]) -> Finding | None:
    """Computes the gradient of a batch again; returns the first thing in it that is not finite, None where all is.

    Gradients are left in ``.grad``. Several ranks must call it together.

    Args:
        step: what computes, its weights those of the fault.
        batch: on the device.
    """
    network = getattr(step.network, "_orig_mod", step.network)
    watch = _Watch(step.micro_batch)
    with _watching(step, network, watch), torch.compiler.set_stance("force_eager"):
        step.gradient(batch)
    if watch.found is not None:
        rows = watch.found.rows or _all_rows(watch.found.order[0], step.micro_batch, batch)
        return replace(watch.found, rows=rows)
    for name, parameter in network.named_parameters():
        if parameter.grad is not None and not bool(local(parameter.grad).isfinite().all()):
            return Finding(what=f"the gradient of {name}", order=(watch.micro, 2))
    return None


@contextmanager
def _watching(step: Step, network: nn.Module, watch: _Watch) -> Iterator[None]:
    compute = step.loss

    def counted(micro: Any) -> Any:
        watch.micro += 1
        part, weight = compute(micro)
        if watch.found is None:
            watch.judge(part, LOSS, 0)
        return part, weight

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if name:
                hooks.callback(module.register_forward_hook(partial(watch.outputs, name)).remove)
        step.loss = counted  # type: ignore[method-assign]  # for this one step
        hooks.callback(lambda: delattr(step, "loss"))
        yield


def _all_rows(micro: int, micro_batch: int, batch: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Returns the rows of a micro batch; none where the step does not say which one it was."""
    rows = next(iter(batch.values())).shape[0]
    return tuple(range(micro * micro_batch, min((micro + 1) * micro_batch, rows))) if micro >= 0 else ()
