"""What tuning's methods compute and move beside frozen matrices: pairs of factors, or what a method's code does.

Methods of PEFT are counted from their code (huggingface/peft@5d602fd, src/peft/tuners): weights are loaded in 16 bits,
what is trained is kept in fp32, and nothing is autocast.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainwright.planner.counts.adapters import PLAIN_MOVES, AdapterMoves, stands_beside
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.parallel.products import Product, divided, product_shape, slowest_elements
from trainwright.planner.counts.parameters import Matrix, matrices
from trainwright.planner.counts.ranks import fullest, slowest_layers, stages_of_a_rank
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Adapter, Workload

WITHOUT_FACTORS = frozenset(
    ("adaptionprompt", "beft", "ia3", "ln_tuning", "prefixtuning", "prompt_tuning", "ptuning", "trainable_tokens")
)
"""Methods of PEFT that train prompts, norms, or scales of activations, and nothing beside a matrix."""
WHOLE_CHANGE: Mapping[str, float] = {
    **dict.fromkeys(("hira", "loha", "lokr", "randlora"), 56.0),
    **dict.fromkeys(("fourierft", "waveft"), 148.0),
    "osf": 22.0,
}
"""Methods of PEFT that make a matrix as large as the adapted one in each pass, and what both passes move for each of
its elements in fp32: two parts made, multiplied, scaled, cast and used, and their gradients back; a spectrum made
complex and transformed over both axes, its real part taken, and all of it back (loha, fourierft). OSF's stay in 16
bits: vectors scaled, two parts made and summed, their sum's gradient written and read twice (osf/utils.py)."""
BOFT_BLOCK = 4
"""Rows of a block of BOFT's (boft/config.py)."""
BOFT_KERNELS = 2.0 / 3
"""Launched for each of them, a third of a step's: one copies it into the rotation, one its gradient out of it."""
PAGEABLE_BYTES_PER_S = 8e9
"""Of host memory that is not pinned, to a device (bandwidthTest of NVIDIA's CUDA samples: 6 to 12 GB/s, recall)."""


def factor_flops(matrix: Matrix, workload: Workload, product: Product, *, wide: float = 1.0) -> Values:
    """Returns what a pass computes beside a matrix, half of a step's operations; 2r (inputs + outputs) for each row.

    Half as many again, because the backward pass makes two products of each factor, and of frozen matrices one alone.
    Tensor parallelism divides a factor as its matrix: the side that is whole on each rank is repeated there.
    ``wide``: how many times longer an operation takes in fp32 than in the workload's precision.
    """
    adapter = workload.adapter
    if adapter is None or adapter.method in WITHOUT_FACTORS or not stands_beside(adapter, matrix):
        return 0.0
    return 2.0 * product.number * _multiplied(adapter, matrix, product, wide)


def _multiplied(adapter: Adapter, matrix: Matrix, product: Product, wide: float) -> Values:
    """Returns half of a step's multiplications beside one matrix on a rank.

    A whole change multiplies what was cast to fp32, as it is itself. OSF makes its matrix of its singular vectors, in
    place of the frozen one, and adds the product for its gradient; FRoD passes three factors, two of them square, in
    place of it; BOFT makes a rotation of three square products, and rotates its input. Of what is square a rank has the
    part of its own inputs.
    """
    rows, outputs, inputs, _ = product
    square = matrix.inputs * inputs
    if adapter.method == "osf":
        return outputs * inputs * (rows + min(matrix.inputs, matrix.outputs)) / 2
    if adapter.method == "frod":
        return 2.5 * rows * square
    if adapter.method == "boft":
        return square * (3.0 * matrix.inputs + 1.5 * rows)
    if adapter.method in WHOLE_CHANGE:
        return 1.5 * wide * rows * outputs * inputs
    return 1.5 * rows * adapter.rank * (inputs + outputs)


def adapter_elements(
    model: ModelSpec, workload: Workload, layouts: Layouts, moves: AdapterMoves = PLAIN_MOVES
) -> Numbers:
    """Returns the elements that adapters of an average block move for one token on one rank, in the forward pass.

    0 where only others are trained. Methods that train no factors beside matrices (prompts, norms, scales of
    activations) name none.
    """
    adapter = workload.adapter
    if adapter is None or adapter.method in WITHOUT_FACTORS:
        return np.zeros(len(layouts))
    load, one = fullest(model, workload, layouts), np.ones(len(layouts))
    moved: Values = 0.0
    for matrix in _adapted(model, adapter):
        rows, outputs, inputs, count = product_shape(matrix, model, layouts, one, load)
        moved = moved + count * rows * (moves.inputs * inputs + moves.outputs * outputs)
    return np.asarray(moved / model.blocks)


def change_s(model: ModelSpec, workload: Workload, layouts: Layouts, device: DeviceSpec) -> Numbers:
    """Returns the seconds [L] that a pass takes to make a rank's whole changes (``WHOLE_CHANGE``), half of a step's.

    FRoD copies a square factor in 16 bits from the host for each matrix in the forward pass.
    """
    adapter = workload.adapter
    if adapter is None:
        return np.zeros(len(layouts))
    some = _adapted(model, adapter)
    if adapter.method == "frod":
        squares: Values = 0.0
        for matrix in some:
            _, inputs, count = divided(matrix, model, layouts)
            squares = squares + count * matrix.inputs * inputs
        return np.asarray(squares / PAGEABLE_BYTES_PER_S * slowest_layers(model, layouts) / model.blocks)
    moved = WHOLE_CHANGE.get(adapter.method, 0.0) / 2
    return np.asarray(moved * slowest_elements(model, layouts, some) / device.bytes_per_s)


def method_bytes(model: ModelSpec, adapter: Adapter | None, layouts: Layouts) -> Numbers:
    """Returns what a method keeps [L] beside a rank's frozen matrices: OSF singular vectors, and what it makes of them.

    A rank has the rows or columns of the vectors that are its matrix's own.
    """
    if adapter is None or adapter.method != "osf":
        return np.zeros(len(layouts))
    kept: Values = 0.0
    for matrix in _adapted(model, adapter):
        outputs, inputs, count = divided(matrix, model, layouts)
        kept = kept + 2.0 * count * (min(matrix.inputs, matrix.outputs) * (outputs + inputs) + outputs * inputs)
    return np.asarray(kept * slowest_layers(model, layouts) * stages_of_a_rank(layouts) / model.blocks)


def method_kernels(model: ModelSpec, adapter: Adapter | None) -> float:
    """Returns the kernels that a method's loops launch for an average block's forward pass, beside its modules'."""
    if adapter is None or adapter.method != "boft":
        return 0.0
    blocks = sum(each.layers * each.inputs / BOFT_BLOCK for each in _adapted(model, adapter))
    return BOFT_KERNELS * blocks / model.blocks


def _adapted(model: ModelSpec, adapter: Adapter) -> list[Matrix]:
    return [matrix for matrix in matrices(model) if stands_beside(adapter, matrix)]
