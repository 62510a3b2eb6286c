"""Where a network is cut into pipeline stages, so that the slowest of them has least to do."""

from __future__ import annotations

import math

from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.spec.model import ModelSpec

STAGE_WASTE = 0.08
"""Of the layers: what the slowest pipeline stages may have more than their share before another count is better."""


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
