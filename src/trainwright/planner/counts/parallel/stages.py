"""Where a network is cut into pipeline stages, so that the slowest of them has least to do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import ParallelPlan

STAGE_WASTE = 0.08
"""Of the layers: what the slowest pipeline stages may have more than their share before another count is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What the ranks at one place of a pipeline have.

    Attributes:
        blocks: how many, in all of their stages.
        begins: they have the embedding.
        ends: they have the last norm and the head.
        neighbours: ends of their stages at which another place goes on.
        shares_table: they have a tied embedding that another place has too.
    """

    blocks: int
    begins: bool = True
    ends: bool = True
    neighbours: int = 0
    shares_table: bool = False


def stage_owners(parallel: ParallelPlan) -> tuple[int, ...]:
    """Returns the place along the axis ``pp`` that has each stage, in the order in which a token passes them.

    Interleaved stages go round the places ``virtual_stages`` times. ``dualpipe`` runs as DualPipeV: two stages at each
    place, forth and back, so that the first one has both ends, and no weight lies at two places.
    """
    places = range(parallel.pp)
    return (*places, *reversed(places)) if parallel.schedule == "dualpipe" else tuple(places) * parallel.virtual_stages


def place_of(model: ModelSpec, parallel: ParallelPlan, place: int) -> Place:
    """Returns what the ranks at a place of a layout's pipeline have.

    Raises:
        ValueError: as ``stage_blocks``.
    """
    owners = stage_owners(parallel)
    parts, last = stage_blocks(model, len(owners)), len(owners) - 1
    mine = [stage for stage, owner in enumerate(owners) if owner == place]
    beside = [owners[other] for stage in mine for other in (stage - 1, stage + 1) if 0 <= other <= last]
    begins, ends = 0 in mine, last in mine
    return Place(
        blocks=sum(len(parts[stage]) for stage in mine),
        begins=begins,
        ends=ends,
        neighbours=sum(other != place for other in beside),
        shares_table=model.tied and begins != ends,
    )


def stage_blocks(model: ModelSpec, stages: int) -> tuple[range, ...]:
    """Returns the numbers of the blocks of each stage, first to last: at least one each.

    The last stage has the head too, which may cost as much as many blocks: it gets so few that the slowest stage is
    least; of two such cuts the more even one. Costs are operations of products with weights: scores cost what the
    sequence makes of them, and a lookup in the embedding nothing. Where the rest does not divide, the earlier stages
    have one block less, for they hold the most micro batches at a time.

    Raises:
        ValueError: the model has fewer blocks than there are stages.
    """
    if stages > model.blocks:
        raise ValueError(f"{model.blocks} blocks are fewer than {stages} stages")
    if stages == 1:
        return (range(model.blocks),)
    block, head = costs(model)
    others = stages - 1

    def slowest(last: int) -> float:
        return max(-(-(model.blocks - last) // others) * block, last * block + head)

    last = min(range(model.blocks // stages, 0, -1), key=slowest)
    least, more = divmod(model.blocks - last, others)
    sizes = [least + (place >= others - more) for place in range(others)] + [last]
    ends = [sum(sizes[: place + 1]) for place in range(stages)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))


def costs(model: ModelSpec) -> tuple[float, float]:
    """Returns multiply-adds of a token in products with the weights of one block, and of the head."""
    each = {matrix: matrix.rows * matrix.layers * matrix.elements for matrix in matrices(model)}
    blocks = sum(cost for matrix, cost in each.items() if matrix.part in BLOCK_PARTS)
    return blocks / model.blocks, float(sum(cost for matrix, cost in each.items() if matrix.part == "head"))


def stage_waste(layers: int, stages: int) -> float:
    """Returns what the slowest of so many pipeline stages has more than its share, as a share of all layers.

    Embedding and head may stand for a layer each, as in Llama 3 405B (arXiv 2407.21783, section 3.3.2).
    """
    if (layers + 2) % stages == 0:
        return 0.0
    return math.ceil(layers / stages) * stages / layers - 1
