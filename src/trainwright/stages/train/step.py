"""One optimizer update: micro batches, one denominator, clip, update; each stage of it on the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from trainwright.core.registry import load
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.task import Batch, Task, TellsParts
from trainwright.runtime.device import compiler
from trainwright.runtime.memory import LiveBytes, SavedBytes
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.stages.train.optimizer import Optimizers, clip

if TYPE_CHECKING:
    from trainwright.model.precision.loss_scale import LossScale
    from trainwright.runtime.faults.gate import Gate

GRAPHS = "trainwright.model.kernels.graphs:CudaGraphs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """What one update saw: summed loss in nats over ``targets`` targets, and the gradient norm before clipping.

    ``beside`` is what the network says of it, by metric, once it is made.
    """

    loss_sum: Tensor
    targets: Tensor
    grad_norm: Tensor
    beside: dict[str, Tensor] = field(default_factory=dict)


class TrainingStep:
    """Gradient of the mean loss over a whole batch, whatever the micro batches, then one update."""

    def __init__(
        self,
        task: Task,
        network: Network,
        optimizers: Optimizers,
        clock: PhaseClock,
        *,
        micro_batch: int,
        clip_norm: float | None,
        compiled: bool,
    ) -> None:
        """Bind what a step works on.

        Args:
            task: what is learnt.
            network: on its device.
            optimizers: over its parameters.
            clock: started; every moment of a step is one of its phases.
            micro_batch: sequences of one forward pass.
            clip_norm: largest gradient norm, or None.
            compiled: run the forward and backward passes through ``torch.compile``.
        """
        self.task = task
        self._tells = task if isinstance(task, TellsParts) else None
        self.device = network.device
        self._trained = network.trained()
        self.parameters = list(self._trained.values())
        self.optimizers = optimizers
        self.clock = clock
        self.micro_batch = micro_batch
        self.clip_norm = clip_norm
        self.gate: Gate | None = None
        self.scale: LossScale | None = None
        recorded = compiled and network.kernels.cuda_graphs
        self.graphs: Any = load(GRAPHS, kind="device")(self.parameters) if recorded else None
        how = {} if self.graphs is None else {"options": self.graphs.options}
        # A compiled module stands for the network: calls are compiled, everything else is passed on to it.
        self.network = (
            cast("Network", torch.compile(network, backend=compiler(self.device.type), **how)) if compiled else network
        )

    def __call__(self, batch: Batch, share: float) -> Update:
        """Train on one batch with ``share`` of the peak learning rate."""
        with self.clock.phase("host_to_device"):
            batch = self.on_device(batch)
        loss_sum, targets = self.gradient(batch)
        with self.clock.phase("update"):
            self.penalise()
            update = Update(loss_sum=loss_sum, targets=targets, grad_norm=self.clip())
            made = self.gate is None or self.gate.passes(update)
            if made:
                self.optimizers.step(share)
            else:
                self.optimizers.leave_out()
            self.optimizers.zero_grad()
            update.beside.update(self.network.after_update(self.summed_up, made=made))
            if self._tells is not None:
                parts = self._tells.told().items()
                update.beside.update({name: self.summed_up(part) / targets for name, part in parts})
        return update

    def resize(self, batch_sequences: int) -> None:
        """Prepares for an update of so many sequences, over all processes; alone, a batch says it itself."""

    def penalise(self) -> None:
        """Adds to the whole gradient that of what weights cost."""
        if self.network.penalties is not None:
            self.network.penalties(self._trained)

    def gradient(self, batch: Batch) -> Loss:
        """Accumulate the gradient of the batch's mean loss into ``.grad``; the summed loss and its weight."""
        with self.clock.phase("preprocess"):
            denominator = self.denominator(batch)
            self.before_update(batch)
            if self._tells is not None:
                self._tells.told()  # what a rehearsal left
        micro_batches = list(self.micro_batches(batch))
        parts: list[Tensor] = []
        for micro in micro_batches:
            part, _ = self.loss(micro)
            with self.clock.phase("backward"):
                self.before_backward(last=len(parts) + 1 == len(micro_batches))
                self.scaled(part / denominator).backward()
            parts.append(part.detach())
        if self.scale is not None:
            self.scale.divide(self.parameters)
        return self.summed_up(reduce(torch.add, parts)), denominator

    def denominator(self, batch: Batch) -> Tensor:
        """Returns the weight of the whole batch: what every loss of it is divided by."""
        return self.task.weight(batch).clamp_min(1)

    def before_update(self, batch: Batch) -> None:
        """Tells the network what one of the batch's sequences is of the whole batch."""
        exact = torch.promote_types(self.network.compute_dtype, torch.float32)
        share = torch.full((), 1 / max(1, self.sequences(batch)), dtype=exact, device=self.device)
        self.network.before_update(self.scaled(share))

    def sequences(self, batch: Batch) -> int:
        """Returns how many sequences the whole batch has."""
        return len(next(iter(batch.values())))

    def summed_up(self, value: Tensor) -> Tensor:
        """Returns a sum over everything that the whole batch passed."""
        return value

    def scaled(self, loss: Tensor) -> Tensor:
        """Returns what is differentiated for a part of the mean loss: that, or where losses are scaled, a multiple."""
        return loss if self.scale is None else self.scale.of(loss)

    def before_backward(self, *, last: bool) -> None:
        """Prepares the backward pass of a micro batch; ``last`` is that of the update."""

    def clip(self) -> Tensor:
        """Returns the norm of the whole gradient, before it is scaled down to the largest that is allowed."""
        return clip(self.parameters, self.clip_norm)

    def inputs(self, micro: Batch) -> Batch:
        """Returns what the task needs of a micro batch."""
        return self.task.inputs(self.network, micro)

    def loss(self, micro: Batch) -> Loss:
        """Summed loss of one micro batch and its weight."""
        with self.clock.phase("preprocess"):
            inputs = self.inputs(micro)
        with self.clock.phase("forward"):
            if self.graphs is not None:
                self.graphs.begin()
            with self.network.keeping():
                hidden = self.task.hidden(self.network, inputs)
            return self.task.loss(self.network, hidden, inputs)

    def rehearse(self, micro: Batch, parameters: Iterable[Tensor], *, caches: bool) -> tuple[int, int]:
        """Runs a micro batch, leaves no gradient; returns bytes of the loss's peak, and saved beside ``parameters``.

        ``caches``: recomputation keeps results of its own, which autograd does not show.
        """
        inputs = self.inputs(micro)
        saved, beside = SavedBytes(parameters), LiveBytes()
        with saved.counting(), beside if caches else nullcontext():
            hidden = self.task.hidden(self.network, inputs)
        saved.add_live(beside, result=hidden)
        leaf = hidden.detach().requires_grad_()
        with LiveBytes() as live:
            part, _ = self.task.loss(self.network, leaf, inputs)
        part.backward()
        if hidden.requires_grad:  # else the head alone is trained
            hidden.backward(leaf.grad)
        self.optimizers.zero_grad()
        stash = self.network.stash
        return live.peak_bytes, saved.total_bytes if stash is None else saved.largest_bytes(stash)

    def micro_batches(self, batch: Batch) -> Iterator[Batch]:
        """Yields the batch cut along its sequences; the last part may be smaller."""
        parts = zip(*(tensor.split(self.micro_batch) for tensor in batch.values()), strict=True)
        return (dict(zip(batch, tensors, strict=True)) for tensors in parts)

    def on_device(self, batch: Batch) -> Batch:
        """Returns the batch where the network is."""
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}
