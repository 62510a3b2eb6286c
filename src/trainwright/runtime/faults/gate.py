"""``Gate``: whether an update is made is decided where its numbers are, so that nobody waits for the device.

On a CPU the decision is read at once. Elsewhere it stays a tensor: a fused optimizer takes it as GradScaler's
``found_inf`` and leaves weights and state alone; it is read with the next report. Loss and norm are sums over all ranks
and the same bits on each, so that all ranks decide alike without a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainwright.runtime.device import widest
from trainwright.spec.sections.faults import Action, FaultsSection

LEAST = 8
"""Updates that a mean and a deviation need before anything is called a spike."""
Seen = tuple[tuple[float, float], ...]
"""Loss in nats per target and gradient norm of the last updates that were made."""


class Numbers(Protocol):
    """What an update saw."""

    @property
    def loss_sum(self) -> Tensor:
        """Returns the summed loss."""

    @property
    def targets(self) -> Tensor:
        """Returns what it is a sum over."""

    @property
    def grad_norm(self) -> Tensor:
        """Returns the gradient's norm before clipping."""


class Scale(Protocol):
    """What losses are multiplied by, so that gradients stay in the range of their dtype (``LossScale``)."""

    def overflows(self, both: Tensor) -> Tensor:
        """Returns whether a gradient left that range, of loss and norm."""

    def follow(self, overflow: Tensor) -> None:
        """Takes in an update."""


Kind = Literal["not_finite", "overflow", "spike"]
"""``overflow``: a scaled gradient left the range of its dtype, which a smaller ``Scale`` mends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An update that was refused, the how manieth since the gate was made, and why."""

    number: int
    update: Numbers
    kind: Kind
    loss: float
    norm: float

    @property
    def value(self) -> float:
        """Returns the number that is wrong: the loss, or the norm where the loss is finite."""
        return self.norm if math.isfinite(self.loss) else self.loss


class Gate:
    """Lets updates pass whose numbers can be right; after a fault that is not skipped it stays shut."""

    def __init__(
        self,
        section: FaultsSection,
        optimizers: Sequence[Optimizer],
        device: torch.device,
        *,
        seen: Iterable[tuple[float, float]] = (),
        scale: Scale | None = None,
    ) -> None:
        """Watch the updates of these optimizers.

        Args:
            section: says what is a fault.
            optimizers: that make an update.
            device: where losses are.
            seen: loss and norm of the last updates, from a checkpoint.
            scale: follows them; what it calls an overflow is left out, and is no fault. None: losses are not scaled.
        """
        self._section, self._optimizers, self._scale = section, optimizers, scale
        self._here = device.type == "cpu"
        # An overflow must not be made, whatever is done about faults.
        self._skips = scale is not None or "skip" in (section.not_finite, section.spike)
        self._masks = not self._here and all(_takes_mask(each) for each in optimizers)
        # On the device, so that a comparison needs nobody's answer; the newest last.
        rows = list(seen)[-section.window :]
        self._exact = widest(device.type)
        self._seen = torch.tensor(rows, dtype=self._exact, device=device).reshape(-1, 2)
        self._shut = torch.zeros((), dtype=torch.bool, device=device)
        self._unread: list[tuple[Numbers, Tensor, dict[Kind, Tensor]]] = []
        self._read = 0

    def passes(self, update: Numbers) -> bool:
        """Returns whether the optimizers are to step; where it is True they may still be told to change nothing."""
        loss = update.loss_sum.to(self._exact) / update.targets
        both = torch.stack([loss, update.grad_norm.to(self._exact)])
        none = torch.zeros((), dtype=torch.bool, device=both.device)
        overflow = none if self._scale is None else self._scale.overflows(both)
        broken = ~(both.isfinite().all() | overflow)
        spike = self._is_spike(both) & ~overflow if self._section.watches else none
        refused = broken | overflow | spike | self._shut
        reasons: dict[Kind, Tensor] = {"not_finite": broken, "overflow": overflow, "spike": spike & ~self._shut}
        self._unread.append((update, both, reasons))
        stays = broken if self._section.not_finite != "skip" else none
        if self._section.spike in ("stop", "rollback"):
            stays = stays | spike
        self._shut = self._shut | stays
        if self._section.watches:
            self._remember(both, refused)
        if self._scale is not None:
            self._scale.follow(overflow)
        if self._here:
            return not bool(refused)
        if self._masks:
            for optimizer in self._optimizers:
                optimizer.found_inf = refused.float()  # type: ignore[attr-defined]  # as torch.amp.GradScaler does
            return True
        # Reading it would make the host wait: done only where an update must not be made, and no kernel can leave it.
        return not self._skips or not bool(refused)

    def _is_spike(self, both: Tensor) -> Tensor:
        known = self._seen.shape[0]
        if known < LEAST:
            return torch.zeros((), dtype=torch.bool, device=both.device)
        deviation, mean = torch.std_mean(self._seen, dim=0)
        return (both > mean + self._section.spike_sigma * deviation).any()

    def _remember(self, both: Tensor, refused: Tensor) -> None:
        """Takes in an update that was made; one that was not leaves the window as it is, whatever its length."""
        known = self._seen
        if self._here:
            self._seen = known if bool(refused) else torch.cat([known, both[None]])[-self._section.window :]
        elif known.shape[0] < self._section.window:
            # A tensor cannot grow or not by a value on the device: a refused update is entered as the mean.
            filler = known.mean(0) if known.shape[0] else both.nan_to_num(0.0, 0.0, 0.0)
            self._seen = torch.cat([known, torch.where(refused, filler, both)[None]])
        else:
            self._seen = torch.where(refused, known, torch.cat([known[1:], both[None]]))

    @property
    def seen(self) -> Seen:
        """Returns loss and norm of the last updates; reads the device."""
        return tuple((loss, norm) for loss, norm in self._seen.tolist())

    def faults(self, *, reading: bool) -> list[Fault]:
        """Returns what was refused since the last call; where numbers are on a device, only with ``reading``."""
        if not (self._here or reading):
            return []
        found = []
        for number, (update, both, reasons) in enumerate(self._unread, start=self._read):
            kind = next((kind for kind, found_so in reasons.items() if bool(found_so)), None)
            if kind is not None:
                loss, norm = both.tolist()
                found.append(Fault(number=number, update=update, kind=kind, loss=loss, norm=norm))
        self._read += len(self._unread)
        self._unread.clear()
        return found


def gate_of(section: FaultsSection, optimizers: Any, device: torch.device, seen: Seen) -> Gate:
    """Returns the gate of a trainer's optimizers."""
    return Gate(section, optimizers.members, device, seen=seen)


def action_of(section: FaultsSection, fault: Fault) -> Action:
    """Returns what the recipe wants done about a fault."""
    return section.not_finite if fault.kind == "not_finite" else section.spike


def _takes_mask(optimizer: Optimizer) -> bool:
    """Returns whether a kernel leaves everything alone where ``found_inf`` says so; DTensors do not mix with it."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    supports = getattr(optimizer, "_step_supports_amp_scaling", False)
    return supports and not any(hasattr(parameter, "device_mesh") for parameter in parameters)
