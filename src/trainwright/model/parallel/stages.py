"""``Pipeline``: the stages that a network is cut into, and the rank on which each runs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Decoder
from trainwright.model.network import Network
from trainwright.planner.counts.parallel.stages import stage_blocks, stage_owners
from trainwright.runtime.mesh import Mesh
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import ParallelPlan


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages in the order in which a token passes them.

    Attributes:
        parts: the numbers of each stage's blocks.
        owners: the rank along the axis ``pp`` that has each stage.
    """

    parts: tuple[range, ...]
    owners: tuple[int, ...]

    def of(self, rank: int) -> tuple[int, ...]:
        """Returns the stages of a rank, first to last."""
        return tuple(stage for stage, owner in enumerate(self.owners) if owner == rank)


def pipeline_of(model: ModelSpec, parallel: ParallelPlan) -> Pipeline:
    """Returns the stages of a layout.

    Raises:
        RecipeError: the model has fewer blocks than stages.
    """
    owners = stage_owners(parallel)
    try:
        return Pipeline(parts=stage_blocks(model, len(owners)), owners=owners)
    except ValueError as problem:
        raise RecipeError(
            "the model cannot be cut into the stages of this layout",
            where="train.exec.layout",
            seen=str(problem),
            expected=f"at most {model.blocks} stages",
        ) from problem


def keep_stages(network: Network, mesh: Mesh) -> None:
    """Drops from a whole network what other pipeline ranks have; a tied embedding stays with the head too.

    What is left keeps its names, so that a checkpoint does not depend on the layout.

    Raises:
        RecipeError: the network is no decoder, or the model has fewer blocks than stages.
    """
    if not isinstance(network, Decoder):
        raise RecipeError(
            "this network cannot be cut into pipeline stages",
            where="train.exec.layout",
            seen=type(network).__name__,
            expected=f"a {Decoder.__name__}",
            fix="set pp=1",
        )
    pipeline = pipeline_of(network.spec, mesh.parallel)
    numbers = [number for stage in pipeline.of(mesh.index("pp")) for number in pipeline.parts[stage]]
    blocks = nn.ModuleList()
    for number in numbers:
        blocks.add_module(str(number), network.blocks[number])
    network.blocks = blocks
    begins, ends = numbers[0] == 0, numbers[-1] == network.spec.layers - 1
    if not (begins or (ends and network.head is None)):
        del network.embedding
    if not begins:
        network.positions = network.embedding_norm = None
    if not ends:
        del network.norm
        network.head = network.head_bias = None
