"""Bytes that one layer's forward pass keeps for its backward pass, operation by operation, on one rank.

Legend: T tokens of a micro batch on one rank, h width, q and k sizes of all query and of all key heads, f feed-forward
width, a heads, s keys that a query sees, e bytes of an element. ``wide`` tensors have the width and are divided by
tensor parallelism with sequence parallelism only; ``inner`` ones (heads, feed-forward) are always divided by it.

With ``fused`` kernels, dropout, no gate and whole scores, the sum is s b h (34 + 5 a s / h), equations 1 and 2 of
Korthikanti et al. (2022, arXiv 2205.05198).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.states import element_bytes, expert_tp
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Workload

EXPERT_IMBALANCE = 1.0
"""The busiest expert-parallel rank's tokens over the mean, with a balancing loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Bytes for each token: of the width, gathered (inputs of divided products), of heads and feed-forward, of scores."""

    wide: float = 0.0
    gathered: float = 0.0
    inner: float = 0.0
    scores: float = 0.0
    copied: float = 0.0
    copied_inner: float = 0.0


def norm_part(model: ModelSpec, size: float, memory: StackMemory, *, trained: bool) -> Part:
    """A norm before a product: its input, and its result, which the product keeps.

    Eager RMSNorm keeps its input in fp32, and where its weight is trained the normalised input too; compiled code keeps
    the input alone and computes the result again.
    """
    if memory.kernels == "compiled":
        return Part(wide=size * model.width)
    eager_rms = memory.kernels == "eager" and model.norm == "rmsnorm"
    own = (4.0 + (size if trained else 0.0)) if eager_rms else size
    return Part(wide=own * model.width, gathered=size * model.width if trained else 0.0)


def keeps_inputs(workload: Workload, memory: StackMemory) -> bool:
    """Whether a product keeps its input: its weight is trained, or quantised by a library that keeps it."""
    adapter = workload.adapter
    return adapter is None or (memory.quantised_inputs and adapter.frozen in ("nf4", "int8"))


def attention_part(model: ModelSpec, workload: Workload, memory: StackMemory) -> Part:
    """Queries, keys, values, mixed values; a statistic for each row, or whole scores; a mask of dropout.

    Whole scores: probabilities, and with dropout their mask and the dropped ones; eager code has them in fp32 too.
    """
    size = element_bytes(workload)
    trained = workload.adapter is None
    queries = model.heads * model.score_size
    mixed = model.heads * model.value_size
    if model.latent is None:
        keys = (model.heads if memory.repeats_keys else model.kv_heads) * model.head_size
        projected = size * (queries + 2 * keys)
    else:
        latent = model.latent
        narrow = latent.kv_rank + latent.rope_size + (latent.query_rank or 0)
        # Latents and their norms are narrow and whole on every rank; keys and values are made for every head.
        projected = size * (queries + model.heads * (model.score_size + model.value_size))
    wide = (2 * size * narrow) if model.latent is not None else 0.0
    masks = dropout_bytes(model, memory)
    if workload.fused_attention:
        statistic, scores = 4.0 * model.heads, 0.0
    else:
        statistic = 0.0
        # Eager softmax works in fp32, and what it drops out is cast to the products' dtype.
        one = 4.0 if memory.kernels == "eager" else size
        dropped = 1.0 + one if masks else 0.0
        cast = size if memory.kernels == "eager" and size < 4 else 0.0
        scores = model.heads * (one + dropped + cast) * workload.sequence_tokens
    adapters = 0.0
    if not trained and workload.adapter is not None:
        inputs = {"query": model.width, "key": model.width, "value": model.width, "output": mixed}
        adapters = sum(memory.adapter_input_bytes * inputs[name] for name in workload.adapter.targets if name in inputs)
    return Part(
        wide=wide + masks * model.width + adapters, inner=projected + size * mixed + statistic, scores=scores
    )


def dropout_bytes(model: ModelSpec, memory: StackMemory) -> float:
    """Bytes of a mask's element; layers with a gate drop nothing out."""
    return 1.0 if memory.dropout and not model.gated else 0.0


def network_part(model: ModelSpec, width: float, workload: Workload, memory: StackMemory) -> Part:
    """A feed-forward of ``width``: gate and up, or up alone, what comes of them, and a mask of dropout.

    Gated: eager code keeps silu(gate) besides; compiled code keeps the products' results alone. The last product's
    input is kept where its weight is trained.
    """
    size = element_bytes(workload)
    adapted = () if workload.adapter is None else workload.adapter.targets
    keeps_input = keeps_inputs(workload, memory) or "down" in adapted
    tensors = 2.0 if model.gated else 1.0
    if memory.kernels == "eager" and model.gated:
        tensors += 1.0
    if memory.kernels != "compiled" and keeps_input:
        tensors += 1.0
    adapters = sum(memory.adapter_input_bytes * model.width for name in adapted if name in ("up", "gate"))
    adapters_inner = memory.adapter_input_bytes * width if "down" in adapted else 0.0
    return Part(
        wide=dropout_bytes(model, memory) * model.width + adapters, inner=tensors * size * width + adapters_inner
    )


def mixture_part(model: ModelSpec, workload: Workload, memory: StackMemory) -> Part:
    """Experts: each token's copies before and behind them, and their networks; the router's probabilities in fp32.

    Experts are divided over ranks with their tokens, so that a rank works on as many copies as it sends.
    """
    experts = model.experts
    if experts is None:
        return Part()
    size = element_bytes(workload)
    network = network_part(model, experts.ffn_width, workload, memory)
    copies = experts.active * EXPERT_IMBALANCE
    shared = network_part(model, experts.shared_ffn_width, workload, memory) if experts.shared_ffn_width else Part()
    return Part(
        wide=8.0 * experts.count, inner=shared.inner,
        copied=copies * 2 * size * model.width, copied_inner=copies * network.inner,
    )  # fmt: skip


def layer_bytes(
    model: ModelSpec, workload: Workload, layouts: Layouts, memory: StackMemory, *, mixture: bool
) -> dict[str, Numbers]:
    """Bytes [L] that one layer keeps, without recomputation: ``norms``, ``attention``, ``scores``, ``feed_forward``."""
    norm = norm_part(model, element_bytes(workload), memory, trained=keeps_inputs(workload, memory))
    attention = attention_part(model, workload, memory)
    feed_forward = (
        mixture_part(model, workload, memory) if mixture else network_part(model, model.ffn_width, workload, memory)
    )
    tokens = micro_tokens(workload, layouts)
    wide = tokens / np.where(layouts.sequence_parallel > 0, layouts.tp, 1.0)
    inner = tokens / layouts.tp
    scores = attention.scores * inner / layouts.cp
    # Ranks that share an expert's matrices gather each other's tokens for it.
    copied = feed_forward.copied * expert_tp(model, layouts) + feed_forward.copied_inner
    return {
        "norms": 2 * norm.wide * wide + 2 * norm.gathered * (tokens if memory.saves_gathered else wide),
        "attention": attention.wide * wide + attention.inner * inner,
        "scores": np.where(layouts.has("recompute", "selective"), 0.0, 1.0) * scores,
        "feed_forward": feed_forward.wide * wide + (feed_forward.inner + copied) * inner,
    }


def micro_tokens(workload: Workload, layouts: Layouts) -> Numbers:
    """Tokens of one micro batch on one rank."""
    return layouts.micro_batch * workload.sequence_tokens / layouts.cp


def transient_bytes(model: ModelSpec, workload: Workload, layouts: Layouts, *, mixture: bool) -> Numbers:
    """Gradients [L] alive while a block's feed-forward goes backward: of the product, gate and up, and twice the width;
    or of whole scores where they are larger."""
    size = element_bytes(workload)
    experts = model.experts
    width = experts.ffn_width * experts.active if mixture and experts is not None else model.ffn_width
    tokens = micro_tokens(workload, layouts)
    divided = tokens / layouts.tp
    network = (3.0 if model.gated else 2.0) * size * width * divided + 2 * size * model.width * tokens
    scores = 0.0 if workload.fused_attention else 2 * size * model.heads * workload.sequence_tokens
    return np.maximum(network, scores * tokens / layouts.tp / layouts.cp)
