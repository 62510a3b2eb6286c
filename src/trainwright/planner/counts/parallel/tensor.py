"""What a rank has of matrices that tensor parallelism cuts, as this project's trainer cuts them.

Rows or columns of every matrix; whole are norms, what is added once (biases of what leads back into the stream),
learned positions, and a head of classes. More ranks than key heads keep copies of them.
"""

from __future__ import annotations

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices, parameter_counts
from trainwright.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RankParameters:
    """Parameters of one rank: in all blocks, and of embedding, last norm and head.

    ``stream`` of them stand in the stream, each the same on all ranks; ``copied`` are key heads that others have too.
    """

    blocks: float
    root: float
    stream: float
    copied: float

    @property
    def total(self) -> float:
        """Returns all of them."""
        return self.blocks + self.root


def rank_parameters(model: ModelSpec, tp: int) -> RankParameters:
    """Returns what each of so many ranks has; of a vocabulary that does not divide, the mean."""
    counts = parameter_counts(model)
    copies = max(1.0, tp / model.kv_heads)
    blocks = copied = 0.0
    stream = float(counts["norms"] + counts["positions"])
    for matrix in matrices(model):
        if matrix.part not in BLOCK_PARTS:
            continue
        bias = matrix.layers * matrix.outputs * matrix.bias
        whole = matrix.parameters
        if matrix.name in ("output", "down"):
            blocks += (whole - bias) / tp + bias
            stream += bias
        elif matrix.name in ("key", "value"):
            blocks += whole * copies / tp
            copied += whole * copies / tp if copies > 1 else 0.0
        else:
            blocks += whole / tp
    last = model.width * (2 if model.norm == "layernorm" and model.norm_bias else 1)
    head = counts["head"] / (1 if model.classes else tp)
    root = counts["embedding"] / tp + counts["positions"] + last + head
    return RankParameters(blocks=blocks + counts["norms"] - last, root=root, stream=stream, copied=copied)
