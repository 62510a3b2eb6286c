"""``RankedWorld``: several processes that train one network together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.parallel.parallelize import parallelize
from trainwright.runtime.mesh import DATA_AXES, Mesh
from trainwright.runtime.norms import local
from trainwright.stages.train.ranks.agreement import Agreement
from trainwright.stages.train.ranks.step import RankedStep
from trainwright.stages.train.step import TrainingStep
from trainwright.stages.train.world import World

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
        self.ranks = mesh.ranks
        self.agreement = Agreement()
        self._batch_sequences = batch_sequences

    def share(self, network: Network, *, compiled: bool) -> None:
        """Turns a whole network into this rank's part of it."""
        parallelize(network, self.mesh, compiled=compiled)

    def rows(self, sequences: int) -> range:
        """Returns which sequences of a batch this rank reads: neighbours, as many as others or as its share says."""
        return self.mesh.parallel.rows(sequences, self.mesh.index(*DATA_AXES))

    def step(self, *arguments: Any, **options: Any) -> TrainingStep:
        """Returns what makes one update."""
        return RankedStep(*arguments, mesh=self.mesh, batch_sequences=self._batch_sequences, **options)

    def agreed(self, since_s: float, signal: str | None) -> tuple[float, str | None]:
        """Returns what all ranks wished one step ago."""
        return self.agreement.agreed(since_s, signal)

    def whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yields each tensor gathered from the ranks that share it."""
        for name, tensor in tensors:
            yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, like: Tensor, value: Tensor) -> Tensor:
        """Returns this rank's part; every rank has the whole one, and nothing is sent."""
        value = value.to(like.device)
        if not isinstance(like, DTensor) or value.shape != like.shape:
            return value
        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)

    def local(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yields what of each tensor lies in this rank's memory."""
        return map(local, tensors)

    def close(self) -> None:
        """Waits for what the ranks still exchange."""
        self.agreement.close()
