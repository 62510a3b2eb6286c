"""One update by several ranks: each has its sequences, and the sum over all of them is divided once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

from torch import Tensor

from trainwright.core.registry import load
from trainwright.model.losses import Loss
from trainwright.model.parallel.parallelize import reduce_gradients
from trainwright.model.tasks.task import Batch, DividesSequences
from trainwright.runtime.mesh import GRADIENT_AXES, Mesh
from trainwright.runtime.norms import add_copies, clip
from trainwright.spec.workload import DATA_AXES
from trainwright.stages.train.step import TrainingStep


class RankedStep(TrainingStep):
    """A step whose batch is this rank's part of the whole one."""

    def __init__(self, *arguments: Any, mesh: Mesh, batch_sequences: int, **options: Any) -> None:
        """Bind what a step works on.

        Args:
            arguments: those of ``TrainingStep``.
            mesh: the ranks.
            batch_sequences: of the whole batch.
            options: those of ``TrainingStep``.
        """
        super().__init__(*arguments, **options)
        self.mesh, self.batch_sequences = mesh, batch_sequences
        self._known_places: dict[int, Tensor] = {}
        self.passes = self._passes()

    def resize(self, batch_sequences: int) -> None:
        """Prepares for an update of so many sequences, over all ranks."""
        if batch_sequences != self.batch_sequences:
            self.batch_sequences = batch_sequences
            self.passes = self._passes()

    def _passes(self) -> int:
        """Returns how many micro batches each rank has: as many as the one with most, where some end with empty ones.

        Ranks exchange weights and gradients in every pass, so that all make as many.
        """
        places = range(self.mesh.size(*DATA_AXES))
        largest = max(len(self.mesh.parallel.rows(self.batch_sequences, place)) for place in places)
        return math.ceil(largest / self.micro_batch)

    def inputs(self, micro: Batch) -> Batch:
        """Returns what the task needs of a micro batch: where other ranks have parts of its sequences, of this part."""
        inputs = super().inputs(micro)
        if self.mesh.size("cp") == 1:
            return inputs
        return cast("DividesSequences", self.task).part(inputs, self._places(inputs["tokens"].shape[1]))

    def _places(self, tokens: int) -> Tensor:
        """Returns where this rank's tokens stand in a sequence."""
        if tokens not in self._known_places:
            division = load("trainwright.model.parallel.context:division_of", kind="layout")(self.mesh)
            self._known_places[tokens] = division.places(tokens, self.device)
        return self._known_places[tokens]

    def gradient(self, batch: Batch) -> Loss:
        """Accumulate the gradient of the batch's mean loss into ``.grad``; the summed loss and its weight."""
        loss = super().gradient(batch)
        add_copies(self.parameters)
        return loss

    def denominator(self, batch: Batch) -> Tensor:
        """Returns the weight of the whole batch."""
        return self.mesh.sum(self.task.weight(batch), *DATA_AXES).clamp_min(1)

    def sequences(self, batch: Batch) -> int:
        """Returns how many sequences the whole batch has, of which this rank has some."""
        return self.batch_sequences

    def summed_up(self, value: Tensor) -> Tensor:
        """Returns a sum over the ranks that saw other targets, or have other layers: a loss, the last stage alone."""
        return self.mesh.sum(value, *GRADIENT_AXES, "pp")

    def before_backward(self, *, last: bool) -> None:
        """Says what this micro batch's gradients are for."""
        reduce_gradients(self.network, zero_stage=self.mesh.parallel.zero_stage, last=last)

    def clip(self) -> Tensor:
        """Returns the norm of the whole gradient, before it is scaled down to the largest that is allowed."""
        return clip(self.parameters, self.clip_norm, self.mesh)

    def micro_batches(self, batch: Batch) -> Iterator[Batch]:
        """Yields the rank's part of the batch, cut along its sequences, and empty ones up to the number of passes."""
        made = 0
        for micro in super().micro_batches(batch):
            made += 1
            yield micro
        for _ in range(made, self.passes):
            yield {name: tensor[:0] for name, tensor in batch.items()}
