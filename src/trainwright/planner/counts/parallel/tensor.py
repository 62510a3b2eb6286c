"""What a rank has of matrices that tensor parallelism cuts, as this project's trainer cuts them.

Rows or columns of every matrix; whole are norms, what is added once (biases of what leads back into the stream),
learned positions, and a head of classes. More ranks than key heads keep copies of them.
"""

from __future__ import annotations

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.parallel.stages import Place
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices, parameter_counts
from trainwright.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RankParameters:
    """Parameters of one rank: in all blocks, and of embedding, last norm and head.

    ``stream`` of them stand in the stream, each the same on all ranks; ``copied`` are key heads that others have too;
    ``table`` is the embedding, where it is there; ``experts`` of those in blocks are those of mixtures, all of them.
    """

    blocks: float
    root: float
    stream: float
    copied: float
    table: float
    experts: float

    @property
    def total(self) -> float:
        """Returns all of them."""
        return self.blocks + self.root


def rank_parameters(model: ModelSpec, tp: int, at: Place | None = None) -> RankParameters:
    """Returns what each of so many ranks has; of a vocabulary that does not divide, the mean.

    Args:
        model: the whole one.
        tp: how many share its matrices.
        at: their place in a pipeline; None: there is none.
    """
    counts, place = parameter_counts(model), Place(blocks=model.blocks) if at is None else at
    copies, share = max(1.0, tp / model.kv_heads), place.blocks / model.blocks
    last = model.width * (2 if model.norm == "layernorm" and model.norm_bias else 1)
    norms = float(counts["norms"] - last)
    blocks = copied = experts = 0.0
    stream = norms
    for matrix in matrices(model):
        if matrix.part not in BLOCK_PARTS:
            continue
        bias = matrix.layers * matrix.outputs * matrix.bias
        whole = matrix.parameters
        experts += whole if matrix.part == "experts" else 0.0
        if matrix.name in ("output", "down"):
            blocks += (whole - bias) / tp + bias
            stream += bias
        elif matrix.name in ("key", "value"):
            blocks += whole * copies / tp
            copied += whole * copies / tp if copies > 1 else 0.0
        else:
            blocks += whole / tp
    table = counts["embedding"] / tp
    begins, copy = table + counts["positions"], table if place.shares_table and place.ends else 0.0
    ends = last + counts["head"] / (1 if model.classes else tp) + copy
    return RankParameters(
        blocks=share * (blocks + norms),
        root=place.begins * begins + place.ends * ends,
        stream=share * stream + place.begins * counts["positions"] + place.ends * last,
        copied=share * copied,
        table=table if place.begins or copy else 0.0,
        experts=share * experts,
    )
