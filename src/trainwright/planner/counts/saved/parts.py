"""Bytes that the parts of a block keep for the backward pass: norms, mixtures of experts, latent attention.

Legend: N tokens, D width, E experts, R rows (copies of tokens, one for each of a token's experts), e bytes of an
element. Scores of experts are fp32 whatever activations are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.planner.counts.adapters import DORA, adapted
from trainwright.planner.counts.parameters import BLOCK_PARTS, matrices
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from trainwright.planner.counts.saved.micro_batch import MicroBatch
    from trainwright.spec.parts.experts import Experts

EXACT_BYTES = 4
"""Of scores, statistics and whatever else is computed in fp32."""
INDEX_BYTES = 8
"""Of the number of a row, or of an expert."""
OF_EXPERTS = ("experts", "router", "shared")
"""The parts that a mixture has in place of a feed-forward."""


def normed_bytes(model: ModelSpec, batch: MicroBatch, *, rows: int, width: int) -> int:
    """Returns the bytes kept of a norm: of RMSNorm input, result and a statistic in fp32, of LayerNorm input and two.

    The weights count where they were cast. Compiled code keeps the input and a statistic and computes the rest again.
    Of a frozen norm neither its result before the weights nor a cast is kept.
    """
    size, frozen = batch.element_bytes, batch.adapter is not None
    if batch.compiled:
        return rows * (width * size + EXACT_BYTES)
    if model.norm == "rmsnorm":
        made = 0 if (size == EXACT_BYTES or frozen) and not model.norm_offset else width * size
        return rows * ((2 - frozen) * EXACT_BYTES * width + EXACT_BYTES) + made
    statistic = size if batch.device_kind == "cpu" else EXACT_BYTES
    cast = 0 if size == EXACT_BYTES or frozen else (1 + model.norm_bias) * width * size
    return rows * (width * size + 2 * statistic) + cast


def cast_bytes(model: ModelSpec, batch: MicroBatch, *, mixture: bool) -> int:
    """Returns the bytes of the copies of one block's matrices in the compute dtype; none in fp32.

    A router's is fp32, and counted with its mixture. Ranks that divide experts have their own ones.
    """
    if batch.element_bytes == EXACT_BYTES:
        return 0
    elements = 0.0
    for matrix in matrices(model):
        if matrix.part not in BLOCK_PARTS or matrix.part == "router":
            continue
        if matrix.part == "attention" or (matrix.part in OF_EXPERTS) == mixture:
            elements += matrix.copies * matrix.elements / (batch.ep if matrix.part == "experts" else 1)
    return int(elements) * batch.element_bytes


def factor_bytes(model: ModelSpec, batch: MicroBatch, *, mixture: bool) -> tuple[int, int]:
    """Returns the bytes that a block's adapters keep: what their first factors return, and casts of both, none in fp32.

    DoRA keeps the sum that it stretches too, and by what each row is stretched.
    """
    if batch.adapter is None:
        return 0, 0
    lengthened, size = batch.adapter.method == DORA, batch.element_bytes
    beside = [
        matrix
        for matrix in adapted(model, batch.adapter)
        if matrix.part == "attention" or (matrix.part in OF_EXPERTS) == mixture
    ]
    rows = sum(batch.adapter.rank + lengthened * matrix.outputs for matrix in beside)
    casts = sum(batch.adapter.rank * (matrix.inputs + matrix.outputs) for matrix in beside)
    casts += lengthened * sum(matrix.outputs for matrix in beside)
    return batch.tokens * rows * size, 0 if size == EXACT_BYTES else casts * size


def keeps_normed(model: ModelSpec, batch: MicroBatch) -> bool:
    """Returns whether a mixture keeps the tokens that it is given, beside their copies.

    A router computes with fp32: of fp32 tokens it keeps these, else a copy. Shared experts keep the tokens.
    """
    assert model.experts is not None
    return batch.element_bytes == EXACT_BYTES or bool(model.experts.shared_ffn_width or model.experts.shared_gate)


def mixture_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes that a mixture keeps, the tokens that it is given apart: routing, experts, shared experts."""
    experts, size = model.experts, batch.element_bytes
    assert experts is not None
    rows, received = batch.tokens * experts.active, _received(experts, batch)
    inside = model.width + _tensors(model, batch, limited=experts.limit is not None) * experts.ffn_width
    exchanged = 2 * INDEX_BYTES * received if batch.ep > 1 else 0
    return (
        _routing_bytes(model, experts, batch)
        + size * (received * inside + rows * model.width)
        + 2 * INDEX_BYTES * rows
        + exchanged
        + _shared_bytes(model, experts, batch)
    )


def mixture_products_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes of the results of a mixture's products that selective recomputation keeps.

    Experts' products, in groups, are made again. The last of the others is not read again: the shared experts' gate or
    their last product, or else the router's.
    """
    experts = model.experts
    assert experts is not None
    logits, shared = EXACT_BYTES * experts.count, batch.element_bytes * 2 * experts.shared_ffn_width
    if experts.shared_gate:
        return batch.tokens * (logits + shared + batch.element_bytes * model.width)
    return batch.tokens * (logits + shared) if experts.shared_ffn_width else 0


def _received(experts: Experts, batch: MicroBatch) -> int:
    """Returns the rows that a rank's experts are given: its own tokens' or, of divided experts, a share of all."""
    rows = batch.tokens * experts.active
    return int(rows * batch.load) if batch.ep > 1 else rows


def _tensors(model: ModelSpec, batch: MicroBatch, *, limited: bool = False) -> int:
    """Returns the tensors that a gated feed-forward keeps: gate, up, the activated gate and the product.

    Compiled code makes the activated gate again; what ReLU returns tells what it was given. With a limit both are kept
    before and behind their bounds too, and the gate's sigmoid.
    """
    return 7 if limited else 4 - batch.compiled - (model.activation == "relu")


def _routing_bytes(model: ModelSpec, experts: Experts, batch: MicroBatch) -> int:
    """Returns the bytes of scores, choices and weights, of what balances them, and of fp32 copies below fp32."""
    tokens, rows, size = batch.tokens, batch.tokens * experts.active, batch.element_bytes
    scores = EXACT_BYTES * tokens * experts.count + (INDEX_BYTES + size) * rows
    scores += EXACT_BYTES * (rows + tokens) * experts.normalised
    copies = 0 if size == EXACT_BYTES else EXACT_BYTES * model.width * (tokens + experts.count)
    return scores + copies + _balance_bytes(experts, batch)


def _balance_bytes(experts: Experts, batch: MicroBatch) -> int:
    """Returns the bytes of the losses of routers: how often each expert is chosen, logits, and scores that sum to 1."""
    tokens, sequences, kept = batch.tokens, batch.sequences, 0
    if not (experts.loss_weight or experts.z_weight):
        return kept
    if experts.loss_weight:
        kept += EXACT_BYTES * sequences * experts.count
        kept += EXACT_BYTES * tokens * (experts.scores == "sigmoid")
    if experts.z_weight:
        kept += EXACT_BYTES * tokens * (experts.count + 1)
    return kept + EXACT_BYTES * sequences * (sequences > 1)  # one sequence has all of the update's share


def _shared_bytes(model: ModelSpec, experts: Experts, batch: MicroBatch) -> int:
    """Returns the bytes of the experts that all tokens pass, and of their gate with what it is multiplied by."""
    each = _tensors(model, batch) * experts.shared_ffn_width
    return batch.tokens * batch.element_bytes * (each + (model.width + 1) * experts.shared_gate)


def latent_bytes(model: ModelSpec, batch: MicroBatch, *, whole: bool) -> int:
    """Returns the bytes of latent attention: latents with their norms, queries, keys, values and what is mixed.

    Args:
        model: with latent attention.
        batch: the pass.
        whole: whether scores are made whole. A fused kernel of a processor has no values of another size than keys':
            it makes them whole too, in fp32.
    """
    latent = model.latent
    assert latent is not None
    tokens, size, heads = batch.tokens, batch.element_bytes, model.heads
    ranks = [latent.kv_rank] if latent.query_rank is None else [latent.query_rank, latent.kv_rank]
    kept = sum(normed_bytes(model, batch, rows=tokens, width=each) + tokens * size * each for each in ranks)
    if size == EXACT_BYTES and not batch.compiled:
        kept += tokens * size * latent.rope_size  # the latent's norm keeps what it was cut off from
    both, values = model.score_size * heads, model.value_size * heads
    if not whole and batch.device_kind != "cpu":
        return kept + tokens * (size * (2 * both + 2 * values) + EXACT_BYTES * heads)
    inner = size if whole else EXACT_BYTES
    scores = heads * batch.sequence_tokens * (1 + (model.score_cap is not None))
    # Values of one sequence are multiplied where they lie, beside the keys that were made with them.
    beside = heads * model.head_size * (batch.sequences == 1 and inner == size)
    return kept + tokens * (inner * (2 * both + values + beside + scores) + size * values)


def latent_results(model: ModelSpec, batch: MicroBatch, *, whole: bool) -> int:
    """Returns the bytes of the results of latent attention's products, and of a fused kernel's with its statistic."""
    latent = model.latent
    assert latent is not None
    results = sum(matrix.outputs for matrix in matrices(model) if matrix.part == "attention")
    kept = batch.tokens * results * batch.element_bytes
    if whole or batch.device_kind == "cpu":
        return kept
    return kept + batch.tokens * model.heads * (model.value_size * batch.element_bytes + EXACT_BYTES)
