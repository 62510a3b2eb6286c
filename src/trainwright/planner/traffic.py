"""What a step does besides matrix products: memory traffic and number of operations.

Counted as if every operation between two products read its inputs and wrote its result once. A real pass costs more
(statistics in fp32, fresh memory, exponentials); how much more is measured on the real network by the doctor, as
seconds per byte of this count, so only the proportions between widths matter here.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.planner.parameters import block_matrices, block_matrix_parameters
from trainwright.spec.device import DTYPE_BYTES
from trainwright.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Bytes moved and operations launched between the matrix products of all blocks.

    ``cast_bytes`` are moved in each pass beside the others: weights to reduced precision on the way forward, their
    gradients to fp32 on the way back. They are as many for one token as for a million.
    """

    forward_bytes: float
    backward_bytes: float
    cast_bytes: float
    casts: int
    forward_operations: int
    backward_operations: int


def block_traffic(model: ModelSpec, *, tokens: int, dtype: str) -> Traffic:
    """The blocks' traffic for ``tokens`` rows; the backward pass moves twice the forward pass's bytes.

    Per token and layer: two norms (2 x read, write) and two residual sums (2 x two reads, write) on the width;
    rotation (2 reads, 2 writes) of queries and keys; a transposition of the mixed values; the activation (read, write)
    and, where it is gated, the product (two reads, write) on the feed-forward width.
    """
    size = DTYPE_BYTES[dtype]
    queries, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    rotated = 4 * (queries + keys) if model.positions == "rope" else 0
    elements = model.layers * (10 * model.width + rotated + 2 * queries + (5 if model.gated else 2) * model.ffn_width)
    forward = float(size * elements * tokens)
    # Launches on one layer: products 7 (6 without a gate), attention 1, and the elementwise operations counted above.
    operations = model.layers * (26 if model.gated else 18)
    return Traffic(
        forward_bytes=forward,
        backward_bytes=2 * forward,
        cast_bytes=0.0 if size == 4 else float(block_matrix_parameters(model) * (4 + size)),
        casts=model.layers * len(block_matrices(model)),
        forward_operations=operations,
        backward_operations=2 * operations,
    )
