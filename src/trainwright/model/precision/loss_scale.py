"""``LossScale``: fp16's smallest number is 6e-8, so that a multiple of the loss is differentiated, and divided again.

The factor is a power of two: but for what would leave fp16's range, gradients have the bits that they would have
without it. Whether one overflowed is read off the whole gradient's norm, the same bits on every rank of a mesh, so that
all ranks leave out the same updates and change the factor alike without a message of their own. It stays on the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainwright.runtime.faults.gate import Gate
from trainwright.runtime.norms import local
from trainwright.spec.sections.faults import FaultsSection
from trainwright.spec.sections.train import LossScaleSection


class LossScale:
    """The factor, and how many updates it has stood since an overflow or a change."""

    def __init__(
        self, section: LossScaleSection, device: torch.device, *, factor: float | None = None, steady: int = 0
    ) -> None:
        """Go on with a factor.

        Args:
            section: how it changes.
            device: where losses are.
            factor: from a checkpoint; None: the one that a run begins with.
            steady: updates without an overflow since it changed.
        """
        first = 2.0 ** round(math.log2(max(section.initial, section.least))) if factor is None else factor
        self._section = section
        self.factor = torch.tensor(first, dtype=torch.float32, device=device)
        self.steady = torch.tensor(steady, dtype=torch.int64, device=device)

    def of(self, loss: Tensor) -> Tensor:
        """Returns what is differentiated for a part of the mean loss."""
        return loss * self.factor

    @torch.no_grad()
    def divide(self, parameters: Iterable[Tensor]) -> None:
        """Divides gradients by the factor, in place."""
        gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, self.factor.reciprocal())

    def overflows(self, both: Tensor) -> Tensor:
        """Returns whether a gradient left fp16's range: the loss is finite and the norm is not, above the least factor.

        Args:
            both: loss and norm.
        """
        loss, norm = both.isfinite()
        return loss & ~norm & (self.factor > self._section.least)

    def follow(self, overflow: Tensor) -> None:
        """Takes in an update: halves the factor after an overflow, doubles it after enough updates without one."""
        steady = torch.where(overflow, 0, self.steady + 1)
        grows = steady >= self._section.growth_steps
        change = torch.where(overflow, 0.5, torch.where(grows, 2.0, 1.0))
        self.factor = (self.factor * change).clamp_min(self._section.least)
        self.steady = torch.where(grows, 0, steady)

    def kept(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as fields of ``TrainingProgress``; reads the device."""
        return {"loss_scale": float(self.factor), "steady_updates": int(self.steady)}


def scaled(
    sections: tuple[LossScaleSection, FaultsSection],
    optimizers: Sequence[Optimizer],
    device: torch.device,
    *,
    kept: tuple[float | None, int],
    seen: Iterable[tuple[float, float]],
) -> tuple[LossScale, Gate]:
    """Returns a trainer's scale, where a checkpoint left it, and the gate that it follows.

    Args:
        sections: how the factor changes; what is a fault.
        optimizers: that make an update.
        device: where losses are.
        kept: factor, None at the beginning, and updates since it changed.
        seen: loss and norm of the last updates.
    """
    factor, steady = kept
    scale = LossScale(sections[0], device, factor=factor, steady=steady)
    return scale, Gate(sections[1], optimizers, device, seen=seen, scale=scale)
