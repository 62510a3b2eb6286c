"""What one training step has to do on one device: seconds at the datasheet's rates, before any software is considered.

Everything here follows from model, workload, layout and cluster; what a stack makes of it is ``time.step``'s. All
quantities are arrays [L] over layouts. One micro batch passes the slowest pipeline rank unless a name says otherwise.

Legend: n tokens of a micro batch on a rank, D width, T sequence, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.adapters import adapter_parameters
from trainwright.planner.counts.flops import count_flops, muon_flops
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.parameters import (
    BLOCK_PARTS,
    MOMENT_BYTES,
    Matrix,
    block_matrix_parameters,
    matrices,
    moments_per_parameter,
    total_parameters,
    wide_matrices,
)
from trainwright.planner.counts.ranks import (
    expert_tp,
    fullest,
    lighter_ends,
    owned_parameters,
    owners,
    rank_parameters,
    slowest_layers,
)
from trainwright.planner.counts.unfused import averaging_bytes, unfused_bytes
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, Precision, Workload

TILE_ROWS, TILE_COLUMNS = 128, 128
"""Output tile of a matrix product on a tensor core GPU (NVIDIA, Matrix Multiplication Background User's Guide)."""
ALIGNED_ELEMENTS = 64
"""128 bytes in 16 bits: what an A100 wants sizes to be multiples of (same guide, "Tensor Core Requirements")."""
HEAD_ELEMENTS = 8
"""16 bytes in 16 bits: batched products of heads that are no multiple of it run without tensor cores (same guide,
table 1; fused attention pads its heads)."""
COLUMN_SPLIT = frozenset(("query", "key", "value", "query_up", "kv_up", "gate", "up", "vocabulary"))
"""Matrices that tensor parallelism splits by outputs, ``ROW_SPLIT`` by inputs (Shoeybi et al., 2019)."""
ROW_SPLIT = frozenset(("output", "down"))
FROZEN_BYTES: Mapping[str, float] = {"nf4": 0.52, "int4": 0.52, "int8": 1.0}
"""Bytes of a quantised weight with its scales (QLoRA, arXiv 2305.14314, section 3)."""
WITHOUT_FACTORS = frozenset(
    ("adaptionprompt", "beft", "ia3", "ln_tuning", "prefixtuning", "prompt_tuning", "ptuning", "trainable_tokens")
)
"""Methods of PEFT that train prompts, norms, or scales of activations, and nothing beside a matrix."""
FALLBACK: Mapping[str, tuple[str, ...]] = {
    "nvfp4": ("fp4", "fp8", "bf16"),
    "fp8": ("fp8", "bf16"),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32",),
}
"""Rates that a precision can use, best first: software runs the next where a device has no unit for one."""


def usable_precision(device: DeviceSpec, asked: Precision | None, software: Stack) -> Precision:
    """Returns the precision asked for, else the first that the software has and the device has a rate for.

    Raises:
        RecipeError: the device has no known rate for it.
    """
    order = software.runs.precisions if asked is None else (asked,)
    known = [precision for precision in order if device.flops_per_s.get(FALLBACK[precision][0])]
    if not known:
        rates = ", ".join(dtype for dtype, rate in device.flops_per_s.items() if rate)
        expected = f"one of {rates}" if rates else "a device with published rates"
        what, names = "no {order} rate is known", " or ".join(order)
        raise RecipeError(what, field="precision", seen=device.name, expected=expected, order=names)
    return known[0]


def peak_flops_per_s(device: DeviceSpec, precision: Precision) -> float:
    """Returns the dense peak of the fastest unit that ``precision`` runs on; 0 where the datasheet has none."""
    return next((device.flops_per_s[name] for name in FALLBACK[precision] if device.flops_per_s.get(name)), 0.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Work:
    """Arrays [L]; see the fields.

    ``products_s``: matrix products of the forward pass at the dense peak, ``unaligned_s`` those of them whose sizes are
    no multiple of 128 bytes, ``head_s`` those of the output head; ``operands_s`` reading and writing their operands;
    ``attention_s`` fused attention's visible products at the 16-bit peak, ``short_s`` those over the sequence's tokens
    (0 where scores are written); ``scores_s`` memory traffic of attention that writes its scores; ``traffic_s``
    everything between products; ``loss_s`` moving fp32 logits once; ``encoder_s`` an encoder's dropout; ``casts_s``
    moving a byte for each parameter that is kept in fp32 and not sharded; ``kernels`` launched in the forward pass, in
    ``expert_layers`` more of them. ``backward_products`` is how many products the backward pass makes for one of the
    forward pass; ``update_s`` is the optimizer's memory traffic, ``orthogonal_s`` are Muon's matrix products at the
    16-bit peak. ``layers`` is how many blocks the slowest rank has.
    """

    tokens: Numbers
    layers: Numbers
    products_s: Numbers
    unaligned_s: Values = 0.0
    head_s: Numbers
    operands_s: Numbers
    attention_s: Values = 0.0
    scores_s: Values = 0.0
    traffic_s: Numbers
    loss_s: Numbers
    encoder_s: Values = 0.0
    casts_s: Numbers
    kernels: Numbers
    expert_layers: Values = 0.0
    backward_products: float
    update_s: Numbers
    orthogonal_s: Values = 0.0
    adapted_s: Values = 0.0
    """Moving an element for each input and output of the matrices that adapters stand beside."""
    dequantised_s: Values = 0.0
    """Reading quantised weights, and writing them in 16 bits for a pass's products."""
    compiled: Values = 0.0
    """1 where a compiler fuses what lies between products."""
    lighter: Values = 0.0
    """Share of its blocks that the pipeline rank with the head has fewer than the slowest one."""
    lighter_ends: Values = 0.0
    """The same of first and last stage together, which one rank of a bidirectional pipeline has."""
    short_s: Values = 0.0
    busy: Numbers
    """Share of the tensor cores that the products' output tiles keep busy, weighted by time."""


def tile_share(rows: Numbers, columns: Values, units: int) -> Numbers:
    """Returns the share of ``units`` processors that work, over all waves of tiles (NVIDIA's guide).

    Of experts each product counts alone: one kernel that shared waves among them would explain published runs less
    well (five folds' 90th percentile 29 instead of 28 %).
    """
    tiles = np.ceil(rows / TILE_ROWS) * np.ceil(columns / TILE_COLUMNS)
    whole = rows * columns / (TILE_ROWS * TILE_COLUMNS)
    return np.asarray(whole / (np.ceil(tiles / units) * units))


def forward_work(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    device: DeviceSpec,
    *,
    eager: bool = False,
    chosen: KernelChoice = DEFAULT_KERNELS,
) -> Work:
    """Returns all that one device computes and moves in its own memory; ``eager`` runs each line of code by itself.

    Raises:
        RecipeError: the device's peak for the workload's precision is not known.
    """
    peak = peak_flops_per_s(device, workload.precision)
    if not peak:
        expected = f"a rate for {' or '.join(FALLBACK[workload.precision])} in its file"
        what = "no peak rate for {precision} is known"
        raise RecipeError(what, where=device.name, expected=expected, precision=workload.precision)
    half_peak = peak_flops_per_s(device, "bf16" if workload.precision in ("fp8", "nvfp4") else workload.precision)
    odd_heads = model.head_size % HEAD_ELEMENTS > 0 and not workload.fused_attention
    head_peak = device.flops_per_s.get("fp32") or half_peak if odd_heads else half_peak
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    layers = slowest_layers(model, layouts)
    shares = _products(model, workload, layouts, device, chosen.pad_vocabulary)
    flops = count_flops(model, sequences=1, sequence_tokens=workload.sequence_tokens)
    attention = flops.attention - (flops.hidden if workload.fused_attention else 0)
    pairs = layouts.micro_batch / layouts.tp / layouts.cp * layers / model.blocks
    # Kernels of GPUs have to fill many processors with few tiles; a processor's cores work on small ones.
    short = attention * pairs / workload.sequence_tokens * (workload.fused_attention and device.kind != "cpu")
    logits = tokens * (model.vocabulary if model.makes_logits else model.classes) / layouts.tp
    lighter, ends = lighter_ends(model, layouts)
    size = workload.element_bytes
    scores = 0.0 if workload.fused_attention else model.heads * workload.sequence_tokens**2 * model.blocks * size
    return Work(
        tokens=tokens,
        layers=layers,
        products_s=shares["flops"] / peak,
        unaligned_s=shares["unaligned"] / peak,
        head_s=shares["head"] / half_peak,
        busy=shares["flops"] / np.maximum(shares["busy"], 1.0),
        operands_s=shares["bytes"] / device.bytes_per_s,
        attention_s=attention * pairs / head_peak,
        short_s=short / head_peak,
        scores_s=scores * pairs / device.bytes_per_s,
        traffic_s=size * tokens * layers * block_elements(model, workload, layouts) / device.bytes_per_s,
        encoder_s=size * tokens * layers * (model.width * (model.kind == "encoder")) / device.bytes_per_s,
        loss_s=4.0 * (1 + model.further_layers) * logits / device.bytes_per_s,
        lighter=lighter,
        lighter_ends=ends,
        casts_s=_cast_parameters(model, workload, layouts) / device.bytes_per_s,
        kernels=layers * kernels(model, workload, eager=eager & (layouts.compile == 0)),
        expert_layers=layers * model.moe_layers / model.blocks,
        backward_products=1.0 if workload.adapter else 2.0,
        adapted_s=size * tokens * layers * adapter_elements(model, workload, layouts) / device.bytes_per_s,
        dequantised_s=dequantised_bytes(model, workload, layouts) / device.bytes_per_s,
        compiled=layouts.compile,
        update_s=update_bytes(model, workload, layouts, chosen) / device.bytes_per_s,
        orthogonal_s=orthogonal_flops(model, workload, layouts) / half_peak,
    )


def _products(
    model: ModelSpec, workload: Workload, layouts: Layouts, device: DeviceSpec, multiple: int
) -> dict[str, Numbers]:
    """Returns operations, also over tile share, and operand bytes of all products of a micro batch."""
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    share = slowest_layers(model, layouts) / model.blocks
    zero = np.zeros(len(layouts))
    sums = {"flops": zero, "busy": zero, "bytes": zero, "head": zero, "unaligned": zero}
    narrow = 1.0 if workload.precision in ("fp8", "nvfp4") else workload.element_bytes
    load = fullest(model, workload, layouts)
    for matrix in wide_matrices(model, multiple):
        rows, outputs, inputs, count = product_shape(matrix, model, layouts, tokens, load)
        flops = 2.0 * rows * outputs * inputs * count
        if matrix.part not in BLOCK_PARTS:
            sums["head"] = sums["head"] + flops
            continue
        flops = flops * share
        thin = factor_flops(matrix, workload, rows, count) * share
        sums["flops"], sums["busy"] = sums["flops"] + thin, sums["busy"] + thin
        busy = tile_share(rows, outputs, device.sm_count or 1) if device.kind != "cpu" else np.ones(len(layouts))
        sums["flops"] = sums["flops"] + flops
        aligned = (outputs % ALIGNED_ELEMENTS == 0) & (inputs % ALIGNED_ELEMENTS == 0)
        sums["unaligned"] = sums["unaligned"] + np.where(aligned, 0.0, flops)
        sums["busy"] = sums["busy"] + flops / busy
        moved = narrow * (rows * inputs + inputs * outputs) + 2.0 * rows * outputs
        sums["bytes"] = sums["bytes"] + moved * count * share
    return sums


def factor_flops(matrix: Matrix, workload: Workload, rows: Numbers, count: Numbers) -> Numbers | float:
    """Returns the operations of the factors of adapters beside a matrix, 2r (inputs + outputs) for each row.

    Half as many again, because the backward pass makes two products of each, and of frozen matrices one alone.
    """
    adapter = workload.adapter
    if adapter is None or adapter.method in WITHOUT_FACTORS or matrix.name not in adapter.targets:
        return 0.0
    return 1.5 * 2.0 * rows * adapter.rank * (matrix.inputs + matrix.outputs) * count


def product_shape(
    matrix: Matrix, model: ModelSpec, layouts: Layouts, tokens: Numbers, load: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Returns rows, outputs and inputs of one product on a rank, and its number in all layers.

    An expert sees its share of all tokens of the ranks that experts are divided over, on the fullest of these ``load``
    times as many. Where tensor parallelism does not divide it, those are ranks with parts of a sequence.
    """
    ones = np.ones(len(layouts))
    rows = layouts.micro_batch * matrix.rows if matrix.per_sequence else tokens * matrix.rows
    count, split = matrix.layers * ones, layouts.tp
    if matrix.part == "experts":
        split = expert_tp(model, layouts)
        count = count * matrix.copies / layouts.ep
        rows = rows * load * layouts.ep / matrix.copies * split / layouts.tp
    outputs = matrix.outputs / split if matrix.name in COLUMN_SPLIT else matrix.outputs * ones
    inputs = matrix.inputs / split if matrix.name in ROW_SPLIT else matrix.inputs * ones
    return rows, outputs, inputs, count


def block_elements(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the elements read and written between the products, for one token of one average block, on one rank.

    Two norms and two residual sums on the width; rotation of queries and keys; a transposition of the mixed values; the
    activation, and its product with the gate. Experts gather and scatter their tokens. Eight-bit products cast and
    transpose their inputs.
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
    if workload.precision in ("fp8", "nvfp4"):
        parts = [matrix for matrix in matrices(model) if matrix.part in BLOCK_PARTS]
        inner = inner + 2.0 * sum(each.rows * each.inputs * each.layers for each in parts) / model.blocks
    return np.asarray(wide / width + inner / layouts.tp)


def adapter_elements(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns inputs and outputs of an average block's adapted matrices on one rank; 0 where only others are trained.

    Methods that train no factors beside matrices (prompts, norms, scales of activations) name none.
    """
    adapter = workload.adapter
    if adapter is None or adapter.method in WITHOUT_FACTORS:
        return np.zeros(len(layouts))
    targets = (matrix for matrix in matrices(model) if matrix.name in adapter.targets)
    return np.asarray(sum(each.layers * (each.inputs + each.outputs) for each in targets) / model.blocks / layouts.tp)


def dequantised_bytes(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns what a pass moves to make 16-bit weights of frozen ones in fewer bits: read once, written once.

    bitsandbytes dequantises a whole matrix before each of its products where a micro batch has more than some tens of
    rows (bitsandbytes 95f9af30, backends/cuda/ops.py:584), in forward and backward pass and in a recomputation.
    """
    stored = FROZEN_BYTES.get(workload.adapter.frozen) if workload.adapter else None
    if stored is None:
        return np.zeros(len(layouts))
    share = slowest_layers(model, layouts) / model.blocks / layouts.tp
    return np.asarray((stored + workload.element_bytes) * block_matrix_parameters(model) * share)


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
    beside = np.where(eager, np.maximum(written, between) + 10 * targets, between + 4 * targets)
    return np.asarray(products + beside + (12 if model.experts else 0))


def _cast_parameters(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the parameters that are cast from fp32 in each pass; FSDP casts its shards as it gathers them."""
    if workload.states != "fp32" or workload.element_bytes == 4 or workload.adapter is not None:
        return np.zeros(len(layouts))
    sharded = (layouts.zero_stage == 3) & (layouts.dp_shard * layouts.cp > 1)
    return np.where(sharded, 0.0, sum(rank_parameters(model, layouts)))


def update_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, chosen: KernelChoice = DEFAULT_KERNELS
) -> Numbers:
    """Returns the memory traffic of one update: gradient, weight and moments read, weight and moments written.

    AdamW with two moments in fp32: 28 bytes a parameter, and 2 more where a reduced copy is written; 14 where all is
    kept reduced. Adafactor keeps no moment, but reads the gradient three times: for the means of its rows and columns,
    for the update's size, by which it is clipped, and for the update (Shazeer and Stern, 2018, arXiv 1804.04235,
    algorithm 4). Muon writes and reads what it makes orthogonal, in 16 bits.
    """
    full = 2.0 if workload.states == "pure" else 4.0
    moment = full if workload.moments is None else MOMENT_BYTES[workload.moments]
    gradients = 3 if workload.optimizer == "adafactor" else 1
    each = (gradients + 2) * full + 2 * moment * moments_per_parameter(model, workload)
    each += 2.0 * (workload.states == "mixed")
    if workload.adapter is not None:
        return np.full(len(layouts), each * adapter_parameters(model, workload.adapter))
    if workload.optimizer == "muon":
        each += 4.0 * block_matrix_parameters(model) / total_parameters(model)
    beside = unfused_bytes(model, workload, layouts, chosen) + averaging_bytes(model, workload, layouts)
    return np.asarray(each * owned_parameters(model, layouts) + beside)


def orthogonal_flops(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the operations of Muon's iterations on one rank (``flops.muon_flops``; Jordan et al., 2024)."""
    if workload.optimizer != "muon" or workload.adapter is not None:
        return np.zeros(len(layouts))
    return dealt(model, layouts, muon_flops)


def dealt(model: ModelSpec, layouts: Layouts, cost: Callable[[int, int], float]) -> Numbers:
    """Returns one rank's part [L] of what Muon does to every one of the blocks' matrices, each of which ``cost`` it.

    Ranks that share the state, tensor-parallel ones too, are dealt whole matrices (Liu et al., 2025, arXiv 2502.16982,
    section 2.3), so that none has less to do than the dearest asks for.
    """
    stage = slowest_layers(model, layouts) / model.blocks
    ranks = owners(layouts) * layouts.tp
    total, dearest = np.zeros(len(layouts)), 0.0
    for matrix in matrices(model):
        if matrix.part in BLOCK_PARTS:
            each = cost(matrix.outputs, matrix.inputs)
            split = layouts.ep if matrix.part == "experts" else 1.0
            shared_by = np.maximum(1.0, ranks / split)
            total = total + each * matrix.layers * matrix.copies * stage / split / shared_by
            dearest = max(dearest, each)
    return np.maximum(total, dearest)
