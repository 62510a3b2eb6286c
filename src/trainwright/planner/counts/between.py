"""What lies between a block's products: what its kernels move, of quantised weights too, and how many there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainwright.planner.counts.adapters import (
    BITSANDBYTES_FROZEN,
    EXPERTS,
    FROZEN_BYTES,
    QUANTISED_FROZEN,
    frozen_bytes,
)
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.methods import method_kernels
from trainwright.planner.counts.parallel.products import slowest_elements
from trainwright.planner.counts.parameters import BLOCK_PARTS, Matrix, block_matrix_parameters, matrices
from trainwright.planner.counts.ranks import fullest, slowest_layers
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, Precision, Workload

NARROW: tuple[Precision, ...] = ("fp8", "nvfp4")
"""What products read in fewer than sixteen bits; all around them stays in sixteen."""
DEQUANTISING_KERNELS = 3
"""Launched before each product on nf4 weights: their scales are made, and shifted, and the matrix is (bitsandbytes
95f9af30, functional.py, dequantize_4bit)."""
EXPERT_BIAS_ELEMENTS = 34.0 / 3
"""Elements moved for each of an expert's results, a third of both passes, where it has a bias: multiplied by the
routing weight in fp32, added, joined with those of other experts and cast, 28 bytes forward and 40 backward in 16-bit
elements (NVIDIA/Megatron-LM, megatron/core/transformer/moe/experts.py, TEGroupedMLP)."""

CAST_ELEMENTS = 2.0
"""16-bit elements that a cast of one to eight bits moves: two bytes are read, two written."""
SAME_INPUT = frozenset(("key", "value", "kv_down"))
"""Matrices that multiply what another one does, a query's; beside a gate ``up`` too."""


def block_elements(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the elements read and written between the products, for one token of one average block, on one rank.

    Two norms and two residual sums on the width; rotation of queries and keys; a transposition of the mixed values; the
    activation, and its product with the gate. Experts gather and scatter their tokens. Products in eight or fewer bits
    have their operands cast (``_cast_elements``).
    """
    width = np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    queries, keys = model.heads * model.score_size, model.kv_heads * model.score_size
    inner: Values = float((4 if model.positions == "rope" else 0) * (queries + keys) + 2 * queries)
    gated = 5 if model.gated else 2
    dense = (model.blocks - model.moe_layers) / model.blocks
    inner += gated * model.ffn_width * dense
    wide: Values = 10.0 * model.width
    if model.experts is not None:
        experts, load = model.experts, fullest(model, workload, layouts)
        inner = inner + gated * (load * experts.active * experts.ffn_width + experts.shared_ffn_width) * (1 - dense)
        wide = wide + 4.0 * load * experts.active * model.width * (1 - dense)
    if workload.precision in NARROW:
        inner = inner + _cast_elements(model)
    return np.asarray(wide / width + inner / layouts.tp)


def _cast_elements(model: ModelSpec) -> float:
    """Returns the elements that casts move for a token of an average block, a third of both passes.

    Each is read in 16 bits and written in eight for two products, along rows and along columns: in the forward pass
    the inputs, once for all products that share one, in the backward pass the gradients of all results (Transformer
    Engine, pytorch/module/linear.py). Routers stay in more bits.
    """
    narrow = [each for each in matrices(model) if _in_block(each) and each.part != "router" and each.outputs > 1]
    shared = SAME_INPUT | ({"up"} if model.gated else set())
    inputs = sum(each.rows * each.inputs * each.layers for each in narrow if each.name not in shared)
    results = sum(each.rows * each.outputs * each.layers for each in narrow)
    return CAST_ELEMENTS / 3 * (inputs + results) / model.blocks


def bias_elements(model: ModelSpec, layouts: Layouts, device: DeviceSpec, *, eager: bool) -> Numbers:
    """Returns what biases add to ``block_elements``: a third of what both passes move.

    The backward pass sums the gradient of each product's result. Code that runs line by line adds a bias to the result
    after the product, a read and a write; else the product's kernel does. Grouped products of libraries for GPUs leave
    those of experts' results to ``EXPERT_BIAS_ELEMENTS``.
    """
    biased = [each for each in matrices(model) if each.bias and _in_block(each)]
    outputs = sum(each.outputs * each.rows * each.layers for each in biased)
    routed = sum(each.outputs * each.rows * each.layers for each in biased if each.name == "down" and each.copies > 1)
    grouped = (layouts.compile == 0) & (device.kind in ("cuda", "rocm"))
    apart = np.where(grouped, EXPERT_BIAS_ELEMENTS, 0.0) * routed
    return np.asarray(((3 if eager else 1) / 3 * outputs + apart) / model.blocks / layouts.tp)


def expert_kernels(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the kernels of an average block that grow with a rank's experts, in the forward pass.

    Two products of each, as grouped products of libraries launch one by one (Transformer Engine's GroupedLinear,
    general_grouped_gemm); in eight or fewer bits each has its inputs cast, and their scales laid out, beside.
    """
    if model.experts is None:
        return np.zeros(len(layouts))
    each = 6.0 if workload.precision in NARROW else 2.0
    return np.asarray(each * model.experts.count / layouts.ep * model.moe_layers / model.blocks)


def _in_block(matrix: Matrix) -> bool:
    return matrix.part in BLOCK_PARTS


def kernels(model: ModelSpec, workload: Workload, *, eager: bool | NDArray[np.bool_] = False) -> Numbers:
    """Returns the number of kernels that a block's forward pass launches: products, attention, and all between.

    Hugging Face's code launches 8 for an RMSNorm and 10 to rotate queries and keys (transformers 5.23.0,
    models/llama/modeling_llama.py). The modules of PEFT take as long as 10 kernels for each adapted matrix: 0.11 ms
    in forward and backward pass, and as much again in the walks of its trainer over 10 more modules.
    """
    products = sum(matrix.layers for matrix in matrices(model) if matrix.part in BLOCK_PARTS) / model.blocks
    between = 17 if model.positions == "rope" else 11
    written = (16 if model.norm == "rmsnorm" else 2) + (10 if model.positions == "rope" else 0) + 10
    targets = len(workload.adapter.targets) if workload.adapter else 0
    if workload.adapter and workload.adapter.frozen == "nf4":
        products += DEQUANTISING_KERNELS * products
    products += method_kernels(model, workload.adapter)
    beside = np.where(eager, np.maximum(written, between) + 10 * targets, between + 4 * targets)
    return np.asarray(products + beside + (12 if model.experts else 0))


def remade_bytes(model: ModelSpec, workload: Workload, layouts: Layouts, memory: StackMemory) -> Numbers:
    """Returns what a micro batch moves on the slowest rank to make norms' and gates' results again; see ``Remade``.

    A norm reads and writes its width, a gate reads two tensors and writes one.
    """
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    wide, inner = 0.0, np.zeros(len(layouts))
    if "norms" in memory.remade:
        latent = model.latent
        wide = 2.0 * (2 * model.width + (latent.kv_rank + (latent.query_rank or 0) if latent else 0))
    if "gates" in memory.remade and model.gated:
        dense = (model.blocks - model.moe_layers) / model.blocks
        inner = inner + 3.0 * model.ffn_width * dense
        if model.experts is not None:
            routed = fullest(model, workload, layouts) * model.experts.active * model.experts.ffn_width
            inner = inner + 3.0 * (routed + model.experts.shared_ffn_width) * (1 - dense)
    width = np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    each = workload.element_bytes * tokens * slowest_layers(model, layouts)
    return np.asarray(each * (wide / width + inner / layouts.tp))


def base_bytes(model: ModelSpec, adapter: Adapter, memory: StackMemory) -> float:
    """Returns the bytes of one element of the frozen blocks, in the mean over what is quantised of them and what not.

    transformers 5 keeps the experts of a layer in one parameter, and bitsandbytes quantises linear layers alone
    (bitsandbytes-foundation/bitsandbytes#1849): experts are in 16 bits there.
    """
    stored = frozen_bytes(adapter.frozen, double_quantised=memory.double_quantised)
    if memory.quantised_experts or adapter.frozen not in BITSANDBYTES_FROZEN or model.experts is None:
        return stored
    experts = sum(each.parameters for each in matrices(model) if each.part == EXPERTS)
    share = experts / block_matrix_parameters(model)
    return share * FROZEN_BYTES["bf16"] + (1 - share) * stored


def is_quantised(matrix: Matrix, adapter: Adapter, memory: StackMemory) -> bool:
    """Returns whether a block's matrix is kept in fewer than 16 bits: see ``base_bytes``."""
    if adapter.frozen not in QUANTISED_FROZEN:
        return False
    return matrix.part != EXPERTS or memory.quantised_experts or adapter.frozen not in BITSANDBYTES_FROZEN


def dequantising_traffic_bytes(model: ModelSpec, workload: Workload, layouts: Layouts, memory: StackMemory) -> Numbers:
    """Returns what a pass moves to make 16-bit weights of frozen ones in fewer bits: read once, written once.

    bitsandbytes dequantises a whole matrix before each of its products where a micro batch has more than some tens of
    rows (bitsandbytes 95f9af30, backends/cuda/ops.py:584), in forward and backward pass and in a recomputation.
    """
    adapter = workload.adapter
    if adapter is None or adapter.frozen not in QUANTISED_FROZEN:
        return np.zeros(len(layouts))
    stored = frozen_bytes(adapter.frozen, double_quantised=memory.double_quantised)
    blocks = (each for each in matrices(model) if each.part in BLOCK_PARTS)
    weights = slowest_elements(model, layouts, (each for each in blocks if is_quantised(each, adapter, memory)))
    return np.asarray((stored + workload.element_bytes) * weights)
