"""What one training step has to do on one device: seconds at the datasheet's rates, before any software is considered.

Everything here follows from model, workload, layout and cluster; what a stack makes of it is ``time.step``'s. All
quantities are arrays [L] over layouts. One micro batch passes the slowest pipeline rank unless a name says otherwise.

Legend: n tokens of a micro batch on a rank, D width, T sequence, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import PLAIN_MOVES, AdapterMoves
from trainwright.planner.counts.between import (
    NARROW,
    bias_elements,
    block_elements,
    dequantising_traffic_bytes,
    expert_kernels,
    kernels,
    remade_bytes,
)
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.layouts import Layouts, Numbers, Values, counted_once
from trainwright.planner.counts.methods import adapter_elements, change_s, factor_flops
from trainwright.planner.counts.parallel.products import product_shape
from trainwright.planner.counts.parameters import BLOCK_PARTS, UP_FROM_LATENTS, wide_matrices
from trainwright.planner.counts.ranks import (
    expert_tp,
    fullest,
    lighter_ends,
    rank_parameters,
    slowest_layers,
)
from trainwright.planner.counts.update import FUSED_BYTES, orthogonal_flops, update_bytes
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Remade, Stack, StackMemory
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, Precision, Workload

PLAIN_MEMORY = StackMemory()
SCORE_ELEMENTS = {True: 22.0 / 3, False: 15.5 / 3}
"""Elements moved for each written score, a third of forward and backward pass: line by line, or in one fused kernel.

Forward: the product writes it, a scale and a mask read and write it, softmax and dropout too (with a mask of a byte),
the second product reads it. Backward: 11.5 more, of which softmax reads two; fused, one kernel has scale, mask and
softmax."""
DROPOUT_ELEMENTS = {True: 10.0 / 3, False: 2.0 / 3}
"""The same for each element of the width, of BERT's two dropouts in a block: with masks of a byte read and written in
both passes line by line, the masks alone where norm and residual sum are of one kernel with it. Encoders with norms
before sub-layers have none (ModernBERT: rates of 0 in its config.json)."""
TILE = (128, 128)
"""Output tile of a matrix product on a tensor core GPU (NVIDIA, Matrix Multiplication Background User's Guide)."""
CORE_TILE = (64, 64)
"""One on a GPU's other cores, which need fewer operations for each byte to be busy."""
TENSOR_CORES_SINCE = 7.0
"""The compute capability of the first GPUs that have them."""
ALIGNED_ELEMENTS = 64
"""128 bytes in 16 bits: what an A100 wants sizes to be multiples of (same guide, "Tensor Core Requirements")."""
HEAD_ELEMENTS = 8
"""16 bytes in 16 bits: batched products of heads that are no multiple of it run without tensor cores (same guide,
table 1; fused attention pads its heads)."""
SCORE_FLOPS = 14
"""Operations of fused attention on a score's element of a head, in both passes: two products and five."""
SCORE_EXPONENTIALS = 2
"""Exponentials of a score, one in each pass."""
EXPONENTIALS_PER_CLOCK = 16
"""Of a multiprocessor (CUDA C++ Programming Guide, throughput of native arithmetic instructions)."""
MORE_EXPONENTIALS: Mapping[str, int] = {"10.3": 2}
"""Times as many of a compute capability, where its generation's rate is another's (NVIDIA, "Making Softmax More
Efficient with NVIDIA Blackwell Ultra": a third faster forward pass of DeepSeek-V3's attention)."""
RATED_HEAD = 128
"""Elements of the heads that attention's rates are for; TPUs pad heads to as many lanes."""
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
    """Returns the precision asked for, else the first that the software has and the device is not slower in than fp32.

    Some processors emulate bf16, several times slower than fp32.

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
    plain = peak_flops_per_s(device, "fp32") if "fp32" in known else 0.0
    return next(precision for precision in known if peak_flops_per_s(device, precision) >= plain)


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
    everything between products; ``loss_s`` moving fp32 logits once; ``encoder_s`` what an encoder's dropout moves;
    ``casts_s`` moving a byte for each parameter that is kept in fp32 and not sharded; ``kernels`` launched in the
    forward pass, in ``expert_layers`` more of them. ``backward_products`` is how many products the backward pass makes
    for one of the forward pass; ``update_s`` is the optimizer's memory traffic, ``orthogonal_s`` are Muon's matrix
    products at the 16-bit peak. ``layers`` is how many blocks the slowest rank has.
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
    """What adapters move beside the inputs and outputs of their matrices."""
    dequantised_s: Values = 0.0
    """Reading quantised weights, and writing them in 16 bits for a pass's products."""
    changed_s: Values = 0.0
    """Making whole changes of weights, in a pass."""
    remade_s: Values = 0.0
    """Products of the forward pass that software makes again (``StackMemory.remade``)."""
    remade_traffic_s: Values = 0.0
    """What it moves for the rest of what it makes again."""
    compiled: Values = 0.0
    """1 where a compiler fuses what lies between products."""
    lighter: Values = 0.0
    """Share of its blocks that the pipeline rank with the head has fewer than the slowest one."""
    lighter_ends: Values = 0.0
    """The same of first and last stage together, which one rank of a bidirectional pipeline has."""
    short_s: Values = 0.0
    attention_again: Values = 0.0
    """1 where selective recomputation repeats attention between its products, and nothing else."""
    thin_heads: Values = 1.0
    """How much longer ``attention_s`` takes than with heads of the size that rates are for."""
    busy: Numbers
    """Share of the tensor cores that the products' output tiles keep busy, weighted by time."""


def on_tensor_cores(device: DeviceSpec, precision: Precision) -> bool:
    """Returns False where a GPU of NVIDIA's has no unit but its plain cores for a precision's products."""
    if device.kind != "cuda":
        return True
    unit = next((name for name in FALLBACK[precision] if device.flops_per_s.get(name)), "")
    return unit != "fp32" and float(device.compute_capability or 0) >= TENSOR_CORES_SINCE


def tile_share(rows: Numbers, columns: Values, units: int, tile: tuple[int, int] = TILE) -> Numbers:
    """Returns the share of ``units`` processors that work, over all waves of tiles (NVIDIA's guide).

    Of experts each product counts alone: one kernel that shared waves among them would explain published runs less
    well (five folds' 90th percentile 29 instead of 28 %).
    """
    tiles = np.ceil(rows / tile[0]) * np.ceil(columns / tile[1])
    whole = rows * columns / (tile[0] * tile[1])
    return np.asarray(whole / (np.ceil(tiles / units) * units))


def _known_peak(device: DeviceSpec, precision: Precision) -> float:
    if peak := peak_flops_per_s(device, precision):
        return peak
    expected = f"a rate for {' or '.join(FALLBACK[precision])} in its file"
    what = "no peak rate for {precision} is known"
    raise RecipeError(what, where=device.name, expected=expected, precision=precision)


def thin_heads(model: ModelSpec, workload: Workload, device: DeviceSpec, flops_per_s: float) -> float:
    """Returns how much longer fused attention takes for an operation than with heads of ``RATED_HEAD``.

    A GPU's exponentials wait for other units than its products, and smaller heads have more of them for each operation
    (Shah et al., 2024, arXiv 2407.08608, section 3.1); a TPU's lanes stand idle beside heads that do not fill them.
    """
    size = (model.score_size + model.value_size) / 2
    if not workload.fused_attention:
        return 1.0
    if device.kind == "tpu":
        return RATED_HEAD * math.ceil(size / RATED_HEAD) / size
    if device.kind != "cuda" or not device.sm_count or not device.clock_hz:
        return 1.0
    exponentials = SCORE_EXPONENTIALS / (EXPONENTIALS_PER_CLOCK * device.sm_count * device.clock_hz)
    share = exponentials / (SCORE_FLOPS * RATED_HEAD / flops_per_s)
    faster = MORE_EXPONENTIALS.get(device.compute_capability or "", 1)
    return (1 + share / faster * RATED_HEAD / size) / (1 + share)


def forward_work(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    device: DeviceSpec,
    *,
    eager: bool = False,
    chosen: KernelChoice = DEFAULT_KERNELS,
    written_bytes: float = FUSED_BYTES,
    adapter_moves: AdapterMoves = PLAIN_MOVES,
    memory: StackMemory = PLAIN_MEMORY,
) -> Work:
    """Returns all that one device computes and moves in its own memory; ``eager`` runs each line of code by itself.

    ``written_bytes`` is what the software's AdamW moves for a parameter in fp32; ``memory`` says which
    frozen weights it quantises, and how.

    Raises:
        RecipeError: the device's peak for the workload's precision is not known.
    """
    peak = _known_peak(device, workload.precision)
    half_peak = peak_flops_per_s(device, "bf16" if workload.precision in NARROW else workload.precision)

    def passes(some: Layouts) -> dict[str, Values]:
        sums = _products(model, workload, some, device, chosen.pad_vocabulary, remade=memory.remade)
        dequantised = dequantising_traffic_bytes(model, workload, some, memory)
        return {
            **_rated(sums, device, peak, half_peak),
            **_attention(model, workload, some, device, half_peak),
            **_between(model, workload, some, device, eager=eager, adapter_moves=adapter_moves),
            **_of_rank(model, workload, some, device, eager=eager),
            "dequantised_s": dequantised / device.bytes_per_s,
            "remade_traffic_s": remade_bytes(model, workload, some, memory) / device.bytes_per_s,
        }

    counted: dict[str, Any] = counted_once(layouts, _dividing(model, layouts), passes)
    return Work(
        **counted,
        casts_s=_cast_parameters(model, workload, layouts) / device.bytes_per_s,
        backward_products=1.0 if workload.adapter else 2.0,
        changed_s=change_s(model, workload, layouts, device),
        compiled=layouts.compile,
        update_s=update_bytes(model, workload, layouts, chosen, written_bytes) / device.bytes_per_s,
        orthogonal_s=orthogonal_flops(model, workload, layouts) / half_peak,
    )


def _dividing(model: ModelSpec, layouts: Layouts) -> list[Numbers]:
    """Returns the columns of layouts that say what a micro batch's passes compute and move."""
    names = ("tp", "pp", "cp", "ep", "micro_batch", "virtual_stages", "sequence_parallel", "compile")
    experts = [] if model.experts is None else [expert_tp(model, layouts)]
    return [*(getattr(layouts, name) for name in names), *experts]


def _rated(sums: Mapping[str, Numbers], device: DeviceSpec, peak: float, half_peak: float) -> dict[str, Values]:
    """Returns the seconds of all products by the sums of ``_products``."""
    return {
        "products_s": sums["flops"] / peak,
        "unaligned_s": sums["unaligned"] / peak,
        "head_s": sums["head"] / half_peak,
        "remade_s": sums["remade"] / peak,
        "busy": sums["flops"] / np.maximum(sums["busy"], 1.0),
        "operands_s": sums["bytes"] / device.bytes_per_s,
    }


def _attention(
    model: ModelSpec, workload: Workload, layouts: Layouts, device: DeviceSpec, half_peak: float
) -> dict[str, Values]:
    """Returns the seconds of a micro batch's attention, and how much longer they are with its heads."""
    odd_heads = model.head_size % HEAD_ELEMENTS > 0 and not workload.fused_attention
    peak = device.flops_per_s.get("fp32") or half_peak if odd_heads else half_peak
    flops = count_flops(model, sequences=1, sequence_tokens=workload.sequence_tokens)
    attention = flops.attention - (flops.hidden if workload.fused_attention else 0)
    pairs = layouts.micro_batch / layouts.tp / layouts.cp * slowest_layers(model, layouts) / model.blocks
    # Kernels of GPUs have to fill many processors with few tiles; a processor's cores work on small ones.
    short = attention * pairs / workload.sequence_tokens * (workload.fused_attention and device.kind != "cpu")
    return {
        "attention_s": attention * pairs / peak,
        "thin_heads": thin_heads(model, workload, device, peak),
        "short_s": short / peak,
    }


def _of_rank(
    model: ModelSpec, workload: Workload, layouts: Layouts, device: DeviceSpec, *, eager: bool
) -> dict[str, Values]:
    """Returns what a rank has of tokens and layers, its launches, and the seconds of the loss."""
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    layers = slowest_layers(model, layouts)
    lighter, ends = lighter_ends(model, layouts)
    logits = tokens * (model.vocabulary if model.makes_logits else model.classes) / layouts.tp
    return {
        "tokens": tokens,
        "layers": layers,
        "loss_s": 4.0 * (1 + model.further_layers) * logits / device.bytes_per_s,
        "lighter": lighter,
        "lighter_ends": ends,
        "kernels": layers * _launched(model, workload, layouts, eager=eager),
        "expert_layers": layers * model.moe_layers / model.blocks,
    }


def _between(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    device: DeviceSpec,
    *,
    eager: bool,
    adapter_moves: AdapterMoves,
) -> dict[str, Values]:
    """Returns the seconds of moving what lies between a micro batch's products, scores, dropout and adapters too."""
    layers = slowest_layers(model, layouts)
    each_s = workload.element_bytes * layers / device.bytes_per_s
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    scores = 0.0 if workload.fused_attention else SCORE_ELEMENTS[eager] * model.heads * workload.sequence_tokens
    dropped = DROPOUT_ELEMENTS[eager] * model.width * (model.kind == "encoder" and model.post_norm)
    elements = block_elements(model, workload, layouts) + bias_elements(model, layouts, device, eager=eager)
    return {
        "scores_s": each_s * tokens * scores / layouts.tp,
        "traffic_s": each_s * tokens * elements,
        "encoder_s": each_s * tokens * dropped,
        "adapted_s": each_s * tokens * adapter_elements(model, workload, layouts, adapter_moves),
    }


def _launched(model: ModelSpec, workload: Workload, layouts: Layouts, *, eager: bool) -> Numbers:
    """Returns the kernels of an average block's forward pass, with those of each expert."""
    block = kernels(model, workload, eager=eager & (layouts.compile == 0))
    return block + expert_kernels(model, workload, layouts)


def _products(
    model: ModelSpec,
    workload: Workload,
    layouts: Layouts,
    device: DeviceSpec,
    multiple: int,
    *,
    remade: tuple[Remade, ...],
) -> dict[str, Numbers]:
    """Returns operations, also over tile share, and operand bytes of all products of a micro batch."""
    tokens = layouts.micro_batch * workload.sequence_tokens / layouts.cp
    share = slowest_layers(model, layouts) / model.blocks
    zero = np.zeros(len(layouts))
    sums = dict.fromkeys(("flops", "busy", "bytes", "head", "unaligned", "remade"), zero)
    narrow = 1.0 if workload.precision in NARROW else workload.element_bytes
    tile = TILE if on_tensor_cores(device, workload.precision) else CORE_TILE
    load = fullest(model, workload, layouts)
    wide = max(1.0, peak_flops_per_s(device, workload.precision) / (device.flops_per_s.get("fp32") or math.inf))
    for matrix in wide_matrices(model, multiple):
        product = product_shape(matrix, model, layouts, tokens, load)
        rows, outputs, inputs, count = product
        flops = 2.0 * rows * outputs * inputs * count
        if matrix.part not in BLOCK_PARTS:
            sums["head"] = sums["head"] + flops
            continue
        flops = flops * share
        if workload.adapter is not None:
            thin = factor_flops(matrix, workload, product, wide=wide) * share
            sums["flops"], sums["busy"] = sums["flops"] + thin, sums["busy"] + thin
        busy = 1.0 if device.kind == "cpu" else tile_share(rows, outputs, device.sm_count or 1, tile)
        sums["flops"] = sums["flops"] + flops
        if "latents" in remade and matrix.name in UP_FROM_LATENTS:
            sums["remade"] = sums["remade"] + flops
        aligned = (outputs % ALIGNED_ELEMENTS == 0) & (inputs % ALIGNED_ELEMENTS == 0)
        sums["unaligned"] = sums["unaligned"] + np.where(aligned, 0.0, flops)
        sums["busy"] = sums["busy"] + flops / busy
        moved = narrow * (rows * inputs + inputs * outputs) + 2.0 * rows * outputs
        sums["bytes"] = sums["bytes"] + moved * count * share
    return sums


def _cast_parameters(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the parameters that are cast from fp32 in each pass; FSDP casts its shards as it gathers them."""
    if workload.states != "fp32" or workload.element_bytes == 4 or workload.adapter is not None:
        return np.zeros(len(layouts))
    sharded = (layouts.zero_stage == 3) & (layouts.sharing > 1)
    return np.where(sharded, 0.0, sum(rank_parameters(model, layouts)))
