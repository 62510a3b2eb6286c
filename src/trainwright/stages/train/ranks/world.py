"""``RankedWorld``: several processes that train one network together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from trainwright.artifact.shards import TokenSplit
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.parallel.parallelize import parallelize
from trainwright.model.tasks.task import Evaluation, EvaluationOptions, Share, Task
from trainwright.runtime.cuts import Cut, mark_all
from trainwright.runtime.exchanges import exchanges_counted
from trainwright.runtime.mesh import AXES, Mesh, everyone
from trainwright.runtime.norms import as_state_of, local
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.workload import DATA_AXES
from trainwright.stages.train.metrics import TrainingMetrics
from trainwright.stages.train.ranks.agreement import Agreement
from trainwright.stages.train.ranks.step import RankedStep
from trainwright.stages.train.ranks.stragglers import Stragglers
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.world import World

WRITING_TIMEOUT_S = 3600.0
"""How long the ranks' writing threads wait for each other: disks differ more than devices do."""
PIPELINED = "trainwright.stages.train.ranks.pipeline.world:PipelinedWorld"


def world_of(mesh: Mesh, *, batch_sequences: int) -> RankedWorld:
    """Returns this process's place on a mesh; pipelines have a world of their own."""
    if mesh.size("pp") == 1:
        return RankedWorld(mesh, batch_sequences=batch_sequences)
    world: RankedWorld = load(PIPELINED, kind="layout")(mesh, batch_sequences=batch_sequences)
    return world


class RankedWorld(World):
    """One of the processes of a mesh."""

    def __init__(self, mesh: Mesh, *, batch_sequences: int) -> None:
        """Takes this process's place.

        Args:
            mesh: all ranks.
            batch_sequences: sequences of one update, over all ranks.
        """
        self.mesh = mesh
        self.leads = mesh.leads
        self.rank, self.ranks = mesh.rank, mesh.ranks
        self.layout = {axis: mesh.size(axis) for axis in (*AXES, "ep") if mesh.size(axis) > 1}
        self.agreement, self.stragglers = Agreement(), Stragglers()
        self._cuts: dict[str, Cut] = {}
        self._batch_sequences = batch_sequences

    def share(self, network: Network, *, compiled: bool) -> None:
        """Turns a whole network into this rank's part of it."""
        self._cuts = parallelize(network, self.mesh, compiled=compiled)

    def give_memory(self, network: Network, device: torch.device) -> None:
        """Moves this rank's part to a device; parameters that were made anew are cut as those before them."""
        super().give_memory(network, device)
        mark_all(network, self._cuts)

    def rows(self, sequences: int) -> range:
        """Returns which sequences of a batch this rank reads: neighbours, as many as others or as its share says."""
        return self.mesh.parallel.rows(sequences, self.mesh.index(*DATA_AXES))

    def step(self, *arguments: Any, **options: Any) -> TrainingStep:
        """Returns what makes one update."""
        return RankedStep(*arguments, mesh=self.mesh, batch_sequences=self._batch_sequences, **options)

    @contextmanager
    def counted(self, network: Network, clock: PhaseClock, *, compiled: bool) -> Iterator[None]:
        """Counts compilation, and what this rank waits for others, as phases of their own within."""
        with super().counted(network, clock, compiled=compiled), exchanges_counted(network, clock):
            yield

    def agreed(self, since_s: float, cause: str | None, *, saved: bool) -> tuple[float, str | None]:
        """Returns what all ranks wished one step ago."""
        return self.agreement.agreed(since_s, cause, saved=saved)

    def compare(self, step: int, times: PhaseTimes, metrics: TrainingMetrics) -> None:
        """Tells what the ranks said at the call before."""
        self.stragglers.compare(step, times, metrics)

    def evaluate(self, task: Task, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Returns what a task measures on a split, on every rank; a task that can divides it over the data axes."""
        mesh = self.mesh
        share = Share(place=mesh.index(*DATA_AXES), places=mesh.size(*DATA_AXES), total=self._total)
        return task.evaluate(network, split, options if share.places == 1 else replace(options, share=share))

    def _total(self, value: Tensor) -> Tensor:
        return self.mesh.sum(value, *DATA_AXES)

    def gathered(self, value: Any) -> list[Any]:
        """Returns what every process gives, by its number; all must ask together."""
        return everyone(value, self.ranks)

    def beside(self) -> Callable[[Any], list[Any]]:
        """Returns ``gathered`` over a group of its own: of one group, two threads would mix up their messages."""
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=WRITING_TIMEOUT_S))
        return partial(everyone, ranks=self.ranks, group=group)

    def whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yields each tensor gathered from the ranks that share it."""
        for name, tensor in tensors:
            whole, cut = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor, self._cut(name, tensor)
            yield name, whole if cut is None else cut.gather(whole)

    def _cut(self, name: str, tensor: Tensor) -> Cut | None:
        """Returns how a parameter is cut, or a state of one, which has its parameter's name and one more."""
        cut = self._cuts.get(name) or self._cuts.get(name.rpartition(".")[0])
        return cut if cut is not None and cut.shape == tensor.shape else None

    def placement(self, name: str, tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns a tensor's whole shape, and where in it this rank's part begins."""
        offsets: tuple[int, ...] = (0,) * tensor.ndim
        if isinstance(tensor, DTensor):
            _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        cut = self._cut(name, tensor)
        if cut is None:
            return tuple(tensor.shape), tuple(offsets)
        begins = cut.parts[cut.rank].start
        return tuple(cut.whole), tuple(at + (begins if dim == cut.dim else 0) for dim, at in enumerate(offsets))

    def laid_out(self, like: Tensor, part: Tensor) -> Tensor:
        """Returns this rank's part of a tensor as one whose rows are shared as those of ``like`` are."""
        part = part.to(like.device)
        if not isinstance(like, DTensor) or part.ndim != like.ndim or part.shape[0] != local(like).shape[0]:
            return part
        return as_state_of(like, part)

    def local(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yields what of each tensor lies in this rank's memory."""
        return map(local, tensors)

    def close(self) -> None:
        """Waits for what the ranks still exchange."""
        self.agreement.close()
        self.stragglers.close()
