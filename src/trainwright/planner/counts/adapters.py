"""Low-rank adapters beside a model's matrices: which these are, their parameters, and the operations they save."""

from __future__ import annotations

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import unknown
from trainwright.planner.counts.flops import count_flops, tokens_of_a_sequence
from trainwright.planner.counts.parameters import BLOCK_PARTS, Matrix, matrices, total_parameters
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Adapter, Workload


def adaptable(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of a block's matrices but the router's: adapters' default targets.

    Dettmers et al., 2023, arXiv 2305.14314, section 4: adapters on all of them are needed to match full fine-tuning.
    """
    return tuple(
        dict.fromkeys(each.name for each in matrices(model) if each.part in BLOCK_PARTS and each.part != "router")
    )


def adapted(model: ModelSpec, adapter: Adapter) -> tuple[Matrix, ...]:
    """Returns the matrices that ``adapter`` stands beside.

    Raises:
        RecipeError: the model has no matrix of a target's name; names the nearest.
    """
    known = dict.fromkeys(matrix.name for matrix in matrices(model))
    for target in adapter.targets:
        if target not in known:
            raise RecipeError("no such matrix to adapt", **unknown(target, known))
    return tuple(matrix for matrix in matrices(model) if matrix.name in adapter.targets)


def adapter_parameters(model: ModelSpec, adapter: Adapter) -> int:
    """Returns the trained parameters: two factors of ``rank`` beside every target's copy; raises as ``adapted``."""
    if adapter.parameters is not None:
        return adapter.parameters
    return sum(
        matrix.layers * matrix.copies * adapter.rank * (matrix.outputs + matrix.inputs)
        for matrix in adapted(model, adapter)
    )


def count_trained(model: AnyModel, workload: Workload) -> int:
    """Returns the parameters that a step updates: all of a model's, or the adapters' alone."""
    if workload.adapter is None:
        return total_parameters(model)
    return adapter_parameters(transformer(model), workload.adapter)


def adapter_training_flops(model: ModelSpec, adapter: Adapter, *, sequences: int, sequence_tokens: int) -> int:
    """Returns the training operations of low-rank adapters on frozen weights, attention in full.

    Frozen matrices need the gradient of their input only (one product in place of two), the first layer's too, as with
    ``enable_input_require_grads``; attention and the adapters' own factors need both. Where ``adapter.parameters``
    replaces the count, they cost six operations for each parameter and token. Raises as ``adapted``.
    """
    tokens = tokens_of_a_sequence(model, sequence_tokens)
    whole = count_flops(model, sequences=sequences, sequence_tokens=tokens)
    frozen = whole.stem + 2 * (whole.linear + whole.head) + 3 * whole.attention
    if adapter.parameters is not None:
        return frozen + 6 * sequences * tokens * adapter_parameters(model, adapter)
    factors = 0
    for matrix in adapted(model, adapter):
        rows = matrix.total_rows(sequences=sequences, sequence_tokens=tokens)
        factors += 2 * matrix.layers * adapter.rank * (matrix.outputs + matrix.inputs) * rows
    return frozen + 3 * factors
