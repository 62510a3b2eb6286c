"""What tuning's methods compute and move beside frozen matrices: pairs of factors, or what a method's code does.

Methods of PEFT are counted from their code (huggingface/peft@5d602fd, src/peft/tuners): weights are loaded in 16 bits,
what is trained is kept in fp32, and nothing is autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import DORA, PLAIN_MOVES, AdapterMoves, adapted, stands_beside
from trainwright.planner.counts.flops import count_flops, tokens_of_a_sequence
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.parallel.products import Product, divided, product_shape
from trainwright.planner.counts.parameters import Matrix
from trainwright.planner.counts.ranks import fullest, slowest_layers, stages_of_a_rank
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Adapter, Workload

BOFT_BLOCK = 4
"""Rows of a block of BOFT's (boft/config.py)."""
BOFT_KERNELS = 2.0 / 3
"""Launched for each of them, a third of a step's: one copies it into the rotation, one its gradient out of it."""
PAGEABLE_BYTES_PER_S = 8e9
"""Of host memory that is not pinned, to a device (bandwidthTest of NVIDIA's CUDA samples: 6 to 12 GB/s, recall)."""


class Beside(NamedTuple):
    """One matrix that a method changes: whole, as a product on a rank, the rank of two factors, and ``wide``.

    ``wide``: how many times longer an operation takes in fp32 than in the workload's precision.
    """

    matrix: Matrix
    product: Product
    rank: int
    wide: float


def two_factors(beside: Beside) -> Values:
    """Returns half of a step's multiplications: the backward pass makes two products of each factor."""
    rows, outputs, inputs, _ = beside.product
    return 1.5 * rows * beside.rank * (inputs + outputs)


def whole_change(beside: Beside) -> Values:
    """Returns half of a step's: what was cast to fp32 is multiplied, with two products more in the backward pass."""
    rows, outputs, inputs, _ = beside.product
    return 1.5 * beside.wide * rows * outputs * inputs


def singular_vectors(beside: Beside) -> Values:
    """Returns half of a step's: the matrix is made in place of the frozen one, and a product makes its gradient."""
    rows, outputs, inputs, _ = beside.product
    return outputs * inputs * (rows + min(beside.matrix.inputs, beside.matrix.outputs)) / 2


def three_factors(beside: Beside) -> Values:
    """Returns half of a step's: three factors, two of them square in the inputs, stand in place of the frozen matrix.

    Of what is square a rank has the part of its own inputs, as of a rotation.
    """
    return 2.5 * beside.product.rows * beside.matrix.inputs * beside.product.inputs


def rotation(beside: Beside) -> Values:
    """Returns half of a step's: a rotation is made of three square products, and rotates the matrix's input."""
    square = beside.matrix.inputs * beside.product.inputs
    return square * (3.0 * beside.matrix.inputs + 1.5 * beside.product.rows)


Keeps = Literal["inputs", "results", "nothing", "products"]
"""What a method keeps beside the frozen products for its backward pass: their inputs; their results, those of attention
alone; nothing; or nothing, because the product itself keeps its input, as with a weight that is trained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterMethod:
    """What a method computes, moves, keeps and launches beside the matrices that it names; a plain one as LoRA does."""

    multiplies: Callable[[Beside], Values] | None = two_factors
    """Half of a step's multiplications beside one matrix on a rank; None: nothing stands beside matrices."""
    keeps: Keeps = "inputs"
    change_bytes: float = 0.0
    """What both passes move for each element of a matrix as large as the adapted one, which is made in each pass."""
    fetched_bytes: float = 0.0
    """Copied from the host's pageable memory for each element of a square of the inputs, in the forward pass."""
    vectors: bool = False
    """All singular vectors are kept, and the matrix that is made of them, in 16 bits."""
    kernels: float = 0.0
    """Launched in the forward pass for each input of a matrix, beside those of a module."""
    prompts: bool = False
    """Learnt tokens before each sequence are all that is trained."""
    trains_factors: bool = False
    """What is trained are the factors, so that their number says the operations."""


PLAIN = AdapterMethod()
METHODS: Mapping[str, AdapterMethod] = {
    **dict.fromkeys(("lora", DORA), AdapterMethod(trains_factors=True)),
    **dict.fromkeys(("beft", "ln_tuning", "prefixtuning", "ptuning"), AdapterMethod(multiplies=None, keeps="nothing")),
    "trainable_tokens": AdapterMethod(multiplies=None, keeps="nothing"),
    "adaptionprompt": AdapterMethod(multiplies=None),
    "prompt_tuning": AdapterMethod(multiplies=None, prompts=True),
    # src/peft/tuners/ia3/layer.py: it scales attention's results, and keeps these.
    "ia3": AdapterMethod(multiplies=None, keeps="results"),
    # What they train comes behind a frozen projection or a sum over blocks of the input (huggingface/peft@04c69f40:
    # src/peft/tuners/{miss,psoft,tinylora,vera,adamss}/layer.py, ``forward``).
    **dict.fromkeys(("adamss", "miss", "psoft", "pvera", "tinylora", "vera"), AdapterMethod(keeps="nothing")),
    # In fp32 two parts are made, multiplied, scaled, cast and used, and their gradients come back (loha).
    **dict.fromkeys(("hira", "loha", "lokr", "randlora"), AdapterMethod(multiplies=whole_change, change_bytes=56.0)),
    # A spectrum is made complex and transformed over both axes, its real part taken, and all of it back (fourierft).
    **dict.fromkeys(("fourierft", "waveft"), AdapterMethod(multiplies=whole_change, change_bytes=148.0)),
    # In 16 bits: vectors scaled, two parts made and summed, their sum's gradient written and read twice (osf/utils.py).
    "osf": AdapterMethod(multiplies=singular_vectors, keeps="products", change_bytes=22.0, vectors=True),
    # One of its square factors in 16 bits lies in the host's memory (frod/layer.py).
    "frod": AdapterMethod(multiplies=three_factors, fetched_bytes=2.0),
    "boft": AdapterMethod(multiplies=rotation, kernels=BOFT_KERNELS / BOFT_BLOCK),
}
"""Methods of PEFT that differ from two factors beside each matrix, by name: a new one is a row."""


def adapter_method(adapter: Adapter) -> AdapterMethod:
    """Returns what an adapter's method does; one without a row has two factors, as LoRA."""
    return METHODS.get(adapter.method, PLAIN)


def factor_flops(matrix: Matrix, workload: Workload, product: Product, *, wide: float = 1.0) -> Values:
    """Returns what a pass computes beside a matrix, half of a step's operations; 2r (inputs + outputs) for each row.

    Half as many again, because the backward pass makes two products of each factor, and of frozen matrices one alone.
    Tensor parallelism divides a factor as its matrix: the side that is whole on each rank is repeated there.
    ``wide``: how many times longer an operation takes in fp32 than in the workload's precision.
    """
    adapter = workload.adapter
    multiplies = None if adapter is None else adapter_method(adapter).multiplies
    if adapter is None or multiplies is None or not stands_beside(adapter, matrix):
        return 0.0
    return 2.0 * product.number * multiplies(Beside(matrix, product, adapter.rank, wide))


def adapter_training_flops(model: ModelSpec, adapter: Adapter, *, sequences: int, sequence_tokens: int) -> int:
    """Returns the training operations of an adapter's method on frozen weights, attention in full.

    Frozen matrices need the gradient of their input only (one product in place of two), the first layer's too, as with
    ``enable_input_require_grads``; attention needs both, and beside matrices the method computes what it does on one
    rank. Where ``adapter.parameters`` replaces the count of factors, they cost six operations for each parameter and
    token. Raises as ``adapted``.
    """
    tokens = tokens_of_a_sequence(model, sequence_tokens)
    whole = count_flops(model, sequences=sequences, sequence_tokens=tokens)
    frozen = whole.stem + 2 * (whole.linear + whole.head) + 3 * whole.attention
    method, beside = adapter_method(adapter), 0.0
    if method.multiplies is None:
        return frozen
    if adapter.parameters is not None and method.trains_factors:
        return frozen + 6 * sequences * tokens * adapter.parameters
    for matrix in adapted(model, adapter):
        rows = matrix.total_rows(sequences=sequences, sequence_tokens=tokens) / matrix.copies
        product = Product(np.asarray(rows), matrix.outputs, matrix.inputs, matrix.layers * matrix.copies)
        beside += float(4 * product.number * method.multiplies(Beside(matrix, product, adapter.rank, wide=1.0)))
    return frozen + round(beside)


def adapter_elements(
    model: ModelSpec, workload: Workload, layouts: Layouts, moves: AdapterMoves = PLAIN_MOVES
) -> Numbers:
    """Returns the elements that adapters of an average block move for one token on one rank, in the forward pass.

    0 where only others are trained. Methods that train no factors beside matrices (prompts, norms, scales of
    activations) name none.
    """
    adapter = workload.adapter
    if adapter is None or adapter_method(adapter).multiplies is None:
        return np.zeros(len(layouts))
    load, one = fullest(model, workload, layouts), np.ones(len(layouts))
    moved: Values = 0.0
    for matrix in adapted(model, adapter):
        rows, outputs, inputs, count = product_shape(matrix, model, layouts, one, load)
        moved = moved + count * rows * (moves.inputs * inputs + moves.outputs * outputs)
    return np.asarray(moved / model.blocks)


def change_s(model: ModelSpec, workload: Workload, layouts: Layouts, device: DeviceSpec) -> Numbers:
    """Returns the seconds [L] that a pass takes to make a rank's whole changes, or to fetch them: half of a step's."""
    method = PLAIN if workload.adapter is None else adapter_method(workload.adapter)
    if workload.adapter is None or not (method.change_bytes or method.fetched_bytes):
        return np.zeros(len(layouts))
    seconds: Values = 0.0
    for matrix in adapted(model, workload.adapter):
        outputs, inputs, count = divided(matrix, model, layouts)
        made, fetched = method.change_bytes * outputs, method.fetched_bytes * matrix.inputs
        seconds = seconds + count * inputs / 2 * (made / device.bytes_per_s + fetched / PAGEABLE_BYTES_PER_S)
    return np.asarray(seconds * slowest_layers(model, layouts) / model.blocks)


def method_bytes(model: ModelSpec, adapter: Adapter | None, layouts: Layouts) -> Numbers:
    """Returns what a method keeps [L] beside a rank's frozen matrices: OSF singular vectors, and what it makes of them.

    A rank has the rows or columns of the vectors that are its matrix's own.
    """
    if adapter is None or not adapter_method(adapter).vectors:
        return np.zeros(len(layouts))
    kept: Values = 0.0
    for matrix in adapted(model, adapter):
        outputs, inputs, count = divided(matrix, model, layouts)
        kept = kept + 2.0 * count * (min(matrix.inputs, matrix.outputs) * (outputs + inputs) + outputs * inputs)
    return np.asarray(kept * slowest_layers(model, layouts) * stages_of_a_rank(layouts) / model.blocks)


def method_kernels(model: ModelSpec, adapter: Adapter | None) -> float:
    """Returns the kernels that a method's loops launch for an average block's forward pass, beside its modules'."""
    if adapter is None or not adapter_method(adapter).kernels:
        return 0.0
    inputs = sum(each.layers * each.inputs for each in adapted(model, adapter))
    return adapter_method(adapter).kernels * inputs / model.blocks


def prompt_tokens(adapter: Adapter | None, width: int) -> int:
    """Returns the learnt tokens before each sequence: all that prompt tuning trains (Lester et al., 2021)."""
    if adapter is None or adapter.parameters is None or not adapter_method(adapter).prompts:
        return 0
    return adapter.parameters // width
