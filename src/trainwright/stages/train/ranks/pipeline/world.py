"""``PipelinedWorld``: processes that each have some blocks of the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.model.network import Network
from trainwright.model.tasks.task import Evaluation, EvaluationOptions, Task
from trainwright.runtime.mesh import AXES, Mesh, everyone
from trainwright.stages.train.ranks.pipeline.evaluation import evaluate
from trainwright.stages.train.ranks.pipeline.step import PipelinedStep
from trainwright.stages.train.ranks.world import RankedWorld
from trainwright.stages.train.step import TrainingStep

Described = tuple[str, torch.Size, torch.dtype, str]
"""Name, whole shape, dtype and kind of device of a tensor."""


def copies_in(names: Sequence[Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Returns the pipeline ranks of each parameter that several of them have, given the names that each has."""
    owners = {
        name: tuple(place for place, theirs in enumerate(names) if name in theirs)
        for name in sorted({name for theirs in names for name in theirs})
    }
    return {name: places for name, places in owners.items() if len(places) > 1}


class PipelinedWorld(RankedWorld):
    """One of the processes of a mesh with an axis ``pp``."""

    def __init__(self, mesh: Mesh, *, batch_sequences: int) -> None:
        """Takes this process's place."""
        super().__init__(mesh, batch_sequences=batch_sequences)
        axis = mesh.axis("pp")
        assert axis is not None
        self.group, self.place = axis.get_group(), mesh.index("pp")

    def step(self, *arguments: Any, **options: Any) -> TrainingStep:
        """Returns what makes one update."""
        network: Network = arguments[1]
        copies = copies_in(self._exchanged([name for name, _ in network.named_parameters()]))
        return PipelinedStep(
            *arguments, mesh=self.mesh, batch_sequences=self._batch_sequences, copies=copies, **options
        )

    def whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yields tensors whole: of all stages on the leading rank, of its own on every other one."""
        mine = dict(tensors)
        described: list[list[Described]] = self._exchanged(
            [
                (name, torch.Size(self.placement(name, tensor)[0]), tensor.dtype, tensor.device.type)
                for name, tensor in mine.items()
            ]
        )
        leads_column = self.mesh.index(*AXES[1:]) == 0
        seen = {name for theirs in described[: self.place] for name, *_ in theirs}
        for name, tensor in super().whole(mine.items()):
            if self.place > 0 and leads_column and name not in seen:
                dist.send(tensor.detach().contiguous(), group=self.group, group_dst=0)
            yield name, tensor
        if self.place == 0 and leads_column:
            yield from self._received(described, set(mine))

    def _received(self, described: list[list[Described]], seen: set[str]) -> Iterator[tuple[str, Tensor]]:
        for place in range(1, len(described)):
            for name, shape, dtype, kind in described[place]:
                if name not in seen:
                    tensor = torch.empty(shape, dtype=dtype, device=kind)
                    dist.recv(tensor, group=self.group, group_src=place)
                    yield name, tensor
            seen |= {name for name, *_ in described[place]}

    def evaluate(self, task: Task, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Returns what a task measures, on every rank."""
        return evaluate(task, network, split, options, mesh=self.mesh)

    def _exchanged(self, value: Any) -> list[Any]:
        """Returns the values of all stages, first to last."""
        return everyone(value, self.mesh.size("pp"), self.group)
