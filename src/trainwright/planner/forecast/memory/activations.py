"""Bytes that one layer's forward pass keeps for its backward pass, operation by operation, on one rank.

Legend: T tokens of a micro batch on one rank, h width, q and k sizes of all query and of all key heads, f feed-forward
width, a heads, s keys that a query sees, e bytes of an element. ``wide`` tensors have the width and are divided by
tensor parallelism with sequence parallelism only; ``inner`` ones (heads, feed-forward) are always divided by it.

With ``fused`` kernels, dropout, no gate and whole scores the sum is s b h (34 + 5 a s / h): equation 1 of Korthikanti
et al. (2022, arXiv 2205.05198); with tensor parallelism equation 2 and, with sequence parallelism, 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.adapters import BITSANDBYTES_FROZEN
from trainwright.planner.counts.between import NARROW
from trainwright.planner.counts.layouts import CONTEXTS, RECOMPUTES, Numbers, Values
from trainwright.planner.counts.methods import adapter_method
from trainwright.planner.counts.parameters import matrices
from trainwright.planner.counts.ranks import expert_tp, fullest
from trainwright.planner.counts.saved import activations as saved
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.forecast.memory.states import MemoryCase
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Fusion

NARROW_BYTES, ATTENDED_BYTES = 1.0, 1.5
"""Of an element that waits for a product in fp8, and of what attention returns, in five bits of exponent and six of
mantissa: DeepSeek-V3, arXiv 2412.19437, section 3.3.2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Bytes for each token.

    ``gathered`` are inputs of divided products, which some stacks keep whole; ``scores`` are divided by context
    parallelism once more; ``copied`` are tokens sent to experts, ``copied_inner`` what is inside of those.
    """

    wide: float = 0.0
    gathered: float = 0.0
    inner: float = 0.0
    scores: float = 0.0
    copied: Values = 0.0
    copied_inner: Values = 0.0


def micro_tokens(case: MemoryCase) -> Numbers:
    """Returns the tokens [L] of one micro batch on one rank: sequences x length / cp."""
    return case.layouts.micro_batch * case.workload.sequence_tokens / case.layouts.cp


def wide_tokens(case: MemoryCase) -> Numbers:
    """Returns the tokens [L] of tensors with the width: divided by tensor parallelism with sequence parallelism."""
    return micro_tokens(case) / np.where(case.layouts.sequence_parallel > 0, case.layouts.tp, 1.0)


def widened(case: MemoryCase, values: Callable[[MemoryCase], Numbers]) -> Numbers:
    """Returns ``values`` [L] of activations, which are in fp32 where the software makes them so."""
    wide = case.widened
    if not wide.any():
        return values(case)
    return np.where(wide, values(replace(case, workload=replace(case.workload, precision="fp32"))), values(case))


def keeps_inputs(case: MemoryCase) -> bool:
    """Returns True where a product keeps its input: its weight is trained, or quantised by a library that keeps it."""
    adapter = case.adapter
    if adapter is None or adapter_method(adapter).keeps == "products":
        return True
    return case.memory.quantised_inputs and adapter.frozen in BITSANDBYTES_FROZEN


def keeps_narrow(case: MemoryCase) -> bool:
    """Returns True where what waits for a product in eight bits is in these already."""
    return case.memory.narrow_inputs and case.workload.precision in NARROW


def adapter_inputs(case: MemoryCase, inputs: dict[str, float]) -> float:
    """Returns the bytes that adapters on the matrices in ``inputs`` keep for themselves (``AdapterMethod.keeps``)."""
    adapter = case.adapter
    keeps = "nothing" if adapter is None else adapter_method(adapter).keeps
    if adapter is None or keeps in ("nothing", "products"):
        return 0.0
    named = [each for each in matrices(case.model) if each.name in inputs and each.name in adapter.targets]
    if keeps == "results" and all(each.part == "attention" for each in named):
        return case.element_bytes * sum(each.outputs for each in named)
    return case.memory.adapter_input_bytes * sum(inputs[name] for name in adapter.targets if name in inputs)


def mask_bytes(case: MemoryCase) -> float:
    """Returns the bytes of a dropout mask's element; layers with a gate drop nothing out."""
    return 1.0 if case.memory.dropout and not case.model.gated else 0.0


def norm_part(case: MemoryCase) -> Part:
    """Returns the part of a norm before a product: its input, and its result, which the product keeps.

    Eager RMSNorm keeps its input in fp32, and where its weight is trained the normalised input too; compiled code keeps
    the input alone and computes the result again.
    """
    size, width = case.element_bytes, case.model.width
    if case.memory.kernels == "compiled" or "norms" in case.memory.remade:
        return Part(wide=size * width)
    eager = case.memory.kernels == "eager" and case.model.norm == "rmsnorm"
    trained = size if keeps_inputs(case) else 0.0
    return Part(wide=(4.0 + trained if eager else size) * width, gathered=trained * width)


def attention_part(case: MemoryCase) -> Part:
    """Returns the part of attention: queries, keys, values, mixed values, a statistic a row or whole scores, a mask."""
    model, size = case.model, case.element_bytes
    queries, mixed = model.heads * model.score_size, model.heads * model.value_size
    wide = mask_bytes(case) * model.width
    into = adapter_inputs(case, {"query": model.width, "key": model.width, "value": model.width})
    wide += min(into, case.memory.adapter_input_bytes * model.width) if case.memory.fused_queries else into
    wide += adapter_inputs(case, {"output": mixed})
    if model.latent is None:
        keys = (model.heads if case.memory.repeats_keys else model.kv_heads) * model.head_size
        projected = queries + 2 * keys
    else:
        # Latents and their norms are narrow, and whole on every rank; keys and values are made for every head.
        latent, remade = model.latent, case.memory.remade
        copies = 1 if "norms" in remade else 2
        wide += copies * size * (latent.kv_rank + latent.rope_size + (latent.query_rank or 0))
        projected = 0 if "latents" in remade else queries + model.heads * (model.score_size + model.value_size)
    scores = 0.0 if case.workload.fused_attention else score_bytes(case) * model.heads * case.workload.sequence_tokens
    statistic = 4.0 * model.heads if case.workload.fused_attention else 0.0
    attended = ATTENDED_BYTES if keeps_narrow(case) else size
    return Part(wide=wide, inner=size * projected + attended * mixed + statistic, scores=scores)


def score_bytes(case: MemoryCase) -> float:
    """Returns the bytes of one whole score: its probability, and with dropout its mask and what is left of it.

    Eager softmax works in fp32, and its result is cast to the products' dtype.
    """
    size, eager = case.element_bytes, case.memory.kernels == "eager"
    one = 4.0 if eager else size
    dropped = 1.0 + one if mask_bytes(case) else 0.0
    return one + dropped + (size if eager and size < 4 else 0.0)


def network_part(case: MemoryCase, width: float, *, expert: bool = False) -> Part:
    """Returns the part of a feed-forward: gate and up, or up alone, what comes of them, and a mask of dropout.

    Gated: eager code keeps silu(gate) besides; compiled code keeps the products' results alone. The last product's
    input is kept where its weight is trained or adapted.
    """
    eager, compiled = case.memory.kernels == "eager", case.memory.kernels == "compiled"
    if expert and case.adapter is not None and not case.adapter.experts:
        case = replace(case, workload=replace(case.workload, adapter=replace(case.adapter, targets=())))
    # A frozen product keeps no input, and an adapter keeps the copy that it makes of it.
    adapted = case.adapter is not None and "down" in case.adapter.targets and not case.memory.adapter_input_bytes
    tensors = (2.0 + eager) if case.model.gated else 1.0
    remade = compiled or (case.model.gated and "gates" in case.memory.remade)
    tensors += not remade and (keeps_inputs(case) or adapted)
    each = NARROW_BYTES if keeps_narrow(case) else case.element_bytes
    width_of_gate = adapter_inputs(case, {"up": case.model.width, "gate": case.model.width})
    return Part(
        wide=mask_bytes(case) * case.model.width + width_of_gate,
        inner=tensors * each * width + adapter_inputs(case, {"down": width}),
    )


def mixture_part(case: MemoryCase) -> Part:
    """Returns the experts' part: tokens' copies before and behind them, their networks, the router's fp32 rows.

    Experts are divided over ranks with their tokens, so that a rank works on as many copies as it sends.
    """
    experts = case.model.experts
    if experts is None:
        return Part()
    copies = experts.active * fullest(case.model, case.workload, case.layouts)
    results = 0.0 if "results" in case.memory.remade else case.element_bytes
    each = (NARROW_BYTES if keeps_narrow(case) else case.element_bytes) + results
    shared = network_part(case, experts.shared_ffn_width) if experts.shared_ffn_width else Part()
    return Part(
        wide=2 * 4.0 * experts.count + shared.wide,
        inner=shared.inner,
        copied=copies * each * case.model.width,
        copied_inner=copies * network_part(case, experts.ffn_width, expert=True).inner,
    )


def layer_bytes(case: MemoryCase, *, mixture: bool) -> dict[str, Numbers]:
    """Returns the bytes [L] of a layer by ``norms``, ``attention``, ``scores``, ``feed_forward``, not all recomputed.

    Selective recomputation makes scores again (Korthikanti et al., section 5), and in compiled code every second
    product, of gate and up one (torchtitan, arXiv 2410.06511, section 2.1.3).
    """
    layouts = case.layouts
    norm, attention = norm_part(case), attention_part(case)
    network = mixture_part(case) if mixture else network_part(case, case.model.ffn_width)
    tokens, wide = micro_tokens(case), wide_tokens(case)
    inner = tokens / layouts.tp
    # Ranks that share an expert's matrices gather each other's tokens for it.
    copied = network.copied * expert_tp(case.model, layouts) + network.copied_inner
    drops = case.memory.kernels == "compiled" and case.model.gated and not mixture
    again = np.where(layouts.has("recompute", "selective") & drops, case.element_bytes * case.model.ffn_width, 0.0)
    return {
        "norms": 2 * norm.wide * wide + 2 * norm.gathered * (tokens if case.memory.saves_gathered else wide),
        "attention": attention.wide * wide + attention.inner * inner,
        "scores": np.where(layouts.has("recompute", "selective"), 0.0, attention.scores) * inner / layouts.cp,
        "feed_forward": network.wide * wide + (network.inner + copied - again) * inner,
    }


def block_bytes(case: MemoryCase, *, mixture: bool) -> Numbers:
    """Returns the bytes [L] that one layer keeps in all.

    By the kernels that the layout's ``compile`` says; selective recomputation makes everything between products again,
    as compiled code does, where kernels are eager.
    """
    if case.memory.kernels == "own":
        own = our_bytes(case).of(mixture=mixture)
        # Casts of weights are saved with each block; FSDP casts what it gathers, and frees it again.
        return np.asarray(own.block - own.casts * ((case.sharded > 0) | case.gathers_once))

    def layer(kernels: Fusion) -> Numbers:
        """Returns the bytes [L] of a layer with such kernels."""
        some = replace(case, memory=replace(case.memory, kernels=kernels))
        return widened(some, lambda each: np.sum(list(layer_bytes(each, mixture=mixture).values()), axis=0))

    again = case.layouts.has("recompute", "selective") & (case.memory.kernels == "eager")
    compiled = (case.layouts.compile > 0) | again
    if not compiled.any():
        return np.asarray(case.memory.activations * layer(case.memory.kernels))
    fused = layer("compiled")
    each = fused if compiled.all() else np.where(compiled, fused, layer(case.memory.kernels))
    return np.asarray(case.memory.activations * each)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OurBlock:
    """Bytes [L] of one block: all that it keeps, what waits of it where it is recomputed selectively, cast weights."""

    block: Numbers
    kept: Numbers
    casts: Numbers


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OurBytes:
    """Bytes [L] as this project's trainer keeps them: blocks, what is saved beside all blocks, and the loss.

    ``mixed`` is a block with experts; of a model without any it is ``dense``.
    """

    dense: OurBlock
    mixed: OurBlock
    beside: Numbers
    loss: Numbers

    def of(self, *, mixture: bool) -> OurBlock:
        """Returns the block with experts, or the one without."""
        return self.mixed if mixture else self.dense


def our_bytes(case: MemoryCase) -> OurBytes:
    """Returns the bytes of this trainer's modules, tensor by tensor, counted once for each kind of micro batch."""
    layouts, workload, model = case.layouts, case.workload, case.model
    shares = layouts.tp, layouts.sequence_parallel, layouts.cp, layouts.context, layouts.ep
    loads = fullest(model, workload, layouts)
    cases = np.stack([layouts.micro_batch, layouts.compile, layouts.recompute, *shares, loads])
    distinct, places = np.unique(cases, axis=1, return_inverse=True)
    rows = []
    for sequences, compiled, recompute, tp, by_tokens, cp, context, ep, load in distinct.T:
        batch = MicroBatch(
            sequences=int(sequences),
            sequence_tokens=workload.sequence_tokens,
            dtype="fp32" if case.element_bytes == 4 else "bf16",
            device_kind="cpu" if case.device_kind == "cpu" else "cuda",
            document_masking=workload.document_masking,
            compiled=bool(compiled),
            kernels=case.kernels,
            tp=int(tp),
            by_tokens=by_tokens > 0,
            cp=int(cp),
            context=CONTEXTS[int(context)],
            ep=int(ep),
            load=float(load),
            adapter=workload.adapter,
        )
        beside = saved.beside_bytes(model, batch, recompute=RECOMPUTES[int(recompute)])
        rows.append((*_of_block(model, batch), beside, saved.loss_bytes(model, batch)))
    each = np.asarray(rows, dtype=np.float64).reshape(-1, 8).T[:, places.reshape(-1)]
    dense, mixed = (OurBlock(block=block, kept=kept, casts=casts) for block, kept, casts in (each[:3], each[3:6]))
    return OurBytes(dense=dense, mixed=mixed, beside=each[6], loss=each[7])


def _of_block(model: ModelSpec, batch: MicroBatch) -> tuple[int, ...]:
    """Returns the bytes of a block without experts, and of one with them: what ``OurBlock`` says of each."""
    kinds = [
        (
            saved.block_bytes(model, batch, mixture=mixture),
            saved.kept_bytes(model, batch, "selective", mixture=mixture),
            saved.casts_of_block(model, batch, mixture=mixture),
        )
        for mixture in ((False, True) if model.experts is not None else (False,))
    ]
    return (*kinds[0], *kinds[-1])


def transient_bytes(case: MemoryCase, *, mixture: bool) -> Numbers:
    """Returns the bytes [L] that a block's backward pass needs beyond those kept, at the worse of two moments.

    In its feed-forward: gradients of the last product's input, gate and up, and two tensors of the width. In attention
    with whole scores: two gradients of them, of which fused kernels write one over the other, and with selective
    recomputation the scores again; what the feed-forward and its norm kept is free by then.
    """
    model, size, experts = case.model, case.element_bytes, case.model.experts
    width = experts.ffn_width * experts.active if mixture and experts is not None else model.ffn_width
    tokens = micro_tokens(case)
    inner, wide = (3.0 if model.gated else 2.0), 2.0
    if case.memory.kernels == "own":
        inner, wide = 1.0, 1.0  # what a product kept is free when the next gradient is made
    network = size * (inner * width / case.layouts.tp + wide * model.width) * tokens
    if case.workload.fused_attention:
        return np.asarray(network)
    gradients = (1.0 if case.memory.kernels == "fused" else 2.0) * size * model.heads * case.workload.sequence_tokens
    again = np.where(case.layouts.has("recompute", "selective"), attention_part(case).scores, 0.0)
    scores = (gradients + again) * tokens / case.layouts.tp / case.layouts.cp
    kept = layer_bytes(case, mixture=mixture)
    return np.maximum(network, scores - case.memory.activations * (kept["feed_forward"] + kept["norms"] / 2))
