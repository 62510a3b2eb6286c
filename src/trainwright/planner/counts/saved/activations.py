"""Bytes that the forward pass keeps for the backward pass, tensor by tensor, as the real module keeps them.

Tests hold these counts to what ``torch.autograd.graph.saved_tensors_hooks`` sees, each storage once, parameters left
out.
Legend: N tokens, D width, F feed-forward width, Q and K sizes of all query and key heads, T sequence, e bytes of an
element. A tensor-parallel rank has a part of heads, feed-forward and vocabulary, and with sequence parallelism of the
tokens between them; inputs of products are whole.
"""

from __future__ import annotations

from trainwright.planner.counts.pieces import FLEX_BLOCK_TOKENS, loss_rows, padded_rows
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.counts.saved.parts import (
    cast_bytes,
    factor_bytes,
    keeps_normed,
    latent_bytes,
    latent_results,
    mixture_bytes,
    mixture_products_bytes,
    normed_bytes,
)
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import MASKED_KERNELS, Recompute


def saved_bytes(
    model: ModelSpec, batch: MicroBatch, *, recompute: Recompute = "none", recomputed: int | None = None
) -> int:
    """Returns the bytes kept from tokens to hidden states.

    With recomputation each block, or ``recomputed`` of them spread evenly, keeps its input, with ``selective`` what
    ``products_bytes`` says too; ``block_bytes`` of one block come back while it is recomputed.
    """
    count, kept = model.layers if recomputed is None else recomputed, 0
    for layer in range(model.layers):
        again = (layer + 1) * count // model.layers > layer * count // model.layers
        kept += kept_bytes(model, batch, recompute if again else "none", mixture=model.mixes(layer))
    return kept + beside_bytes(model, batch, recompute=recompute)


def kept_bytes(model: ModelSpec, batch: MicroBatch, recompute: Recompute, *, mixture: bool = False) -> int:
    """Returns the bytes that one block keeps from its forward to its backward pass; ``mixture``: one with experts."""
    if recompute == "none":
        return block_bytes(model, batch, mixture=mixture)
    inputs = batch.stream_tokens * model.width * batch.element_bytes
    return inputs if recompute == "full" else inputs + products_bytes(model, batch, mixture=mixture)


def products_bytes(model: ModelSpec, batch: MicroBatch, *, mixture: bool = False) -> int:
    """Returns the bytes of the results of a block's products but the last, and of fused attention with its statistic.

    Whole scores are made again, and so are experts' products.
    """
    whole = _makes_scores(model, batch)
    if model.latent is not None:
        kept = latent_results(model, batch, whole=whole)
    else:
        queries, keys = _heads(model, batch)
        # Attention's last product has the width on every rank, before the ranks add it up.
        kept = batch.tokens * (queries + 2 * keys + model.width) * batch.element_bytes
        if not whole:
            kept += batch.tokens * (queries * batch.element_bytes + 4 * model.heads // batch.tp)
    if mixture:
        return kept + mixture_products_bytes(model, batch)
    inner = (2 if model.gated else 1) * model.ffn_width // batch.tp
    return kept + batch.tokens * inner * batch.element_bytes


def beside_bytes(model: ModelSpec, batch: MicroBatch, *, recompute: Recompute = "none") -> int:
    """Returns the bytes kept beside the blocks: indices, positions, the last norm, and a mask of documents.

    Of images they are the pixels and the last norm. Documents have positions of their own in each sequence. All blocks
    add one mask to their scores: the fused kernel keeps it, and so do blocks that are computed again.
    """
    tokens, size = batch.tokens, batch.element_bytes
    if model.sees_images:
        pixels = size * 3 * model.image_size**2  # the patches, for the gradient of their projection
        return batch.sequences * pixels + _norm_bytes(model, batch) + _key_bytes(model, batch, recompute)
    # Turns follow from what is between two tokens: an encoder's tasks count positions where a table says them alone.
    counts = model.kind == "decoder" or model.positions == "learned"
    rows = tokens if batch.document_masking and counts else batch.sequence_tokens // batch.cp
    # Of values and keys of two sizes a processor's fused kernel makes whole scores too.
    adds = _makes_scores(model, batch) or (model.latent is not None and batch.device_kind == "cpu")
    keeps_masks = recompute != "none" or not adds
    masks = _masks(model, batch) * _mask_bytes(model, batch) if keeps_masks else 0
    if batch.kernels.attention in MASKED_KERNELS:
        masks = len(_windows(model)) * _block_mask_bytes(batch) if batch.kernels.attention == "flex" else 0
    absent = tokens if batch.tp > 1 else 0  # which tokens other ranks look up
    absent_norm = not model.first_norm and recompute == "none"  # the first block counts two
    norms = (model.final_norm + model.embedding_norm - absent_norm) * _norm_bytes(model, batch)
    if batch.adapter is not None:
        # Of frozen embeddings the first norm needs no gradient: what it would keep stands for the last one's.
        tokens = absent = norms = 0
    return (
        8 * tokens + absent + _position_bytes(model, rows, size) + norms + masks + _key_bytes(model, batch, recompute)
    )


def _key_bytes(model: ModelSpec, batch: MicroBatch, recompute: Recompute) -> int:
    """Returns the bytes from which dropout's masks are made again: keys of the sequences, and their tokens' places.

    A sub-layer that a sequence skips knows no places; a block that is computed again is given them all the same.
    """
    placed = model.dropout.of_elements or recompute != "none"
    places = batch.sequence_tokens if placed else 0
    return 8 * (batch.sequences + places) if model.dropout else 0


def _position_bytes(model: ModelSpec, rows: int, size: int) -> int:
    """Returns the bytes of positions that are looked up, or of cosines and sines: of windowed layers their own."""
    if model.positions == "learned":
        return 8 * rows
    tables = len(_windows(model)) if model.window_rope_theta is not None else 1
    return tables * rows * model.rotated_size * size if model.positions == "rope" else 0


def _windows(model: ModelSpec) -> set[int | None]:
    """Returns the windows of the layers: those of one window are told once what tokens see."""
    return {model.window_of(layer) for layer in range(model.layers)}


def _masks(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns how many masks a pass makes: one for each window, none for what causality alone says."""
    if batch.document_masking or batch.gathers or model.positions == "alibi":
        return len(_windows(model))
    sides = 1 if model.kind == "decoder" else 2
    reaches = {None if window is None else window // sides + sides - 1 for window in _windows(model)}
    return sum(reach is not None and reach < batch.sequence_tokens for reach in reaches)


def _mask_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes of a mask over whole sequences, or of a rank's queries; without documents all have one.

    With ALiBi each head of a rank has its own.
    """
    queries = batch.sequence_tokens // (batch.cp if batch.gathers else 1)
    rows = queries * (batch.sequences if batch.document_masking else 1)
    heads = model.heads // batch.tp if model.positions == "alibi" else 1
    return heads * int(rows * batch.sequence_tokens * batch.seen) * batch.element_bytes


def _block_mask_bytes(batch: MicroBatch) -> int:
    """Returns the bytes of flex_attention's lists of blocks, by queries and by keys, and of the documents' numbers.

    Four lists of all blocks of scores, those that are seen in part and in whole, with how many there are in each row.
    FlashAttention-3 has a few bytes for each document in their place, which count for nothing.
    """
    sequences, tokens = batch.sequences if batch.document_masking else 1, batch.sequence_tokens
    size = tokens // (2 * batch.cp) if batch.gathers else tokens
    # Of the stretches of the rank whose keys are most: its first ends at the first of them, its last at the end.
    parts = [(size, size), (size, tokens)] if batch.gathers else [(tokens, tokens)]
    blocks = [(-(-queries // FLEX_BLOCK_TOKENS), -(-keys // FLEX_BLOCK_TOKENS)) for queries, keys in parts]
    lists = sum(4 * (4 * rows * columns + 2 * (rows + columns)) for rows, columns in blocks)
    return sequences * (lists + (8 * tokens if batch.document_masking else 0))


def _makes_scores(model: ModelSpec, batch: MicroBatch) -> bool:
    """Returns whether attention's weights are made whole: fused kernels know no dropout of ours and bound no scores."""
    return batch.makes_scores or model.makes_scores or model.dropout.attention > 0


def block_bytes(model: ModelSpec, batch: MicroBatch, *, mixture: bool = False) -> int:
    """Returns the bytes that one block keeps: norms with their results, attention, feed-forward, cast weights.

    ``mixture``: of a block with experts.
    """
    tokens, size = batch.tokens, batch.element_bytes
    norm = _norm_bytes(model, batch)
    before, behind = min(2, model.norms_per_block), max(0, model.norms_per_block - 2)
    results = [batch.keeps_input_of(*names) for names in (_INTO_ATTENTION, _INTO_NETWORK)]
    kept = any(results) if before == 1 else sum(results)
    normed = before * norm + kept * tokens * model.width * size + behind * norm
    if model.parallel_residual and before == 2:
        normed -= batch.stream_tokens * model.width * _norm_element_bytes(model, batch)  # both read one input
    if mixture and before == 2 and not keeps_normed(model, batch):
        normed -= tokens * model.width * size
    fed = mixture_bytes(model, batch) if mixture else _feed_forward_bytes(model, batch)
    beside, _ = factor_bytes(model, batch, mixture=mixture)
    return normed + _attention_bytes(model, batch) + fed + beside + casts_of_block(model, batch, mixture=mixture)


_INTO_ATTENTION = ("query", "key", "value", "query_down", "kv_down")
_INTO_NETWORK = ("up", "gate", "shared_gate")
"""Matrices of a block that are given what a norm returns."""


def casts_of_block(model: ModelSpec, batch: MicroBatch, *, mixture: bool = False) -> int:
    """Returns the bytes of a rank's copies of a block's matrices in the compute dtype; key heads may be on several.

    Frozen ones are kept in it: only factors beside them are copied.
    """
    if batch.adapter is not None:
        return factor_bytes(model, batch, mixture=mixture)[1]
    copied = 2 * model.width * (_heads(model, batch)[1] * batch.tp - model.kv_heads * model.head_size)
    repeated = 0 if batch.element_bytes == 4 or model.latent is not None else copied * batch.element_bytes
    return (cast_bytes(model, batch, mixture=mixture) + repeated) // batch.tp


def _feed_forward_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes of a feed-forward. Gated: gate, up, silu(gate), and their product. Plain: before and after.

    Compiled code computes silu(gate) again, and what ReLU returns tells what it was given.
    """
    kept = (4 - batch.compiled if model.gated else 2) - (model.activation == "relu")
    if not batch.keeps_input_of("down"):
        kept = max(1, kept - 1)
    return kept * batch.tokens * model.ffn_width * batch.element_bytes // batch.tp


def _norm_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes kept of a norm of the residual stream."""
    return normed_bytes(model, batch, rows=batch.stream_tokens, width=model.width)


def _norm_element_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes of an element of a norm's input as it is kept: RMSNorm keeps it in fp32."""
    return 4 if model.norm == "rmsnorm" and not batch.compiled else batch.element_bytes


def _heads(model: ModelSpec, batch: MicroBatch) -> tuple[int, int]:
    """Returns the sizes of all query and of all key heads of a rank: of these at least one."""
    return model.heads // batch.tp * model.head_size, max(1, model.kv_heads // batch.tp) * model.head_size


def _attention_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the bytes of queries, keys, values and the mixed values, these where the last product keeps its input.

    The probabilities too where scores are made whole, else one statistic for each row.
    """
    if model.latent is not None:
        return latent_bytes(model, batch, whole=_makes_scores(model, batch))
    queries, keys = _heads(model, batch)
    rows = model.heads // batch.tp * batch.tokens
    whole = batch.sequences * batch.sequence_tokens
    normed = 0
    if model.qk_norm:
        key_rows = batch.tokens * keys // model.head_size
        normed = sum(normed_bytes(model, batch, rows=each, width=model.head_size) for each in (rows, key_rows))
    if _makes_scores(model, batch):
        # Grouped keys and values are repeated to one per query head before the products, for each stretch of queries.
        repeated = 2 * batch.seen * whole if batch.gathers else batch.tokens
        # A soft bound keeps its tanh beside the probabilities.
        scores = int(rows * batch.sequence_tokens * batch.seen) * (1 + (model.score_cap is not None))
        scores += rows if model.sinks else 0
        wide = (1 + batch.keeps_input_of("output")) * batch.tokens * queries
        return (wide + int(2 * repeated * queries) + scores) * batch.element_bytes + normed
    # The fused kernel lays its result out as the queries are: rotated ones are contiguous by head, so that the way back
    # to rows of the width is a copy.
    as_queries = batch.device_kind == "cpu" or batch.kernels.attention == "flex"
    copied = batch.cp > 1 or (model.positions == "rope" and as_queries)
    results = 2 if copied and batch.keeps_input_of("output") else 1
    if batch.cp > 1 and not batch.gathers:
        keys = max(model.kv_heads, batch.cp) * model.head_size  # key heads that are fewer than the ranks are repeated
    gathered = 2 * (whole if batch.gathers else batch.tokens) * keys
    return (batch.tokens * (1 + results) * queries + gathered) * batch.element_bytes + 4 * rows + normed


def loss_bytes(model: ModelSpec, batch: MicroBatch) -> int:
    """Returns the most that the loss holds at once, for one chunk of logits after the other.

    Always its gradients of the hidden states and (fp32) of the head, and the head where it was cast or filled up.
    Beside them either logits and log-probabilities in fp32, or one of these with its gradient, cast or filled up, the
    head's gradient of this chunk and two narrow products. Of an image one token is read, whose logits are classes. A
    frozen head, beside adapters, has no gradient, and is in the dtype of products.
    """
    trained = batch.adapter is None
    size, vocabulary, tokens = batch.element_bytes, -(-model.vocabulary // batch.tp), batch.tokens
    if model.sees_images:
        vocabulary, tokens = model.classes, batch.sequences
    elif model.tells_tokens:
        vocabulary = model.classes
    rows = loss_rows(batch.kernels.loss_chunk_tokens, tokens=tokens, vocabulary=vocabulary)
    wide = padded_rows(vocabulary, batch.kernels.pad_vocabulary)
    head = wide * model.width
    reduced = size if size < 4 or wide > vocabulary else 0
    filled = reduced if trained or wide > vocabulary else 0
    softmax = 4 * rows * (vocabulary + (wide if size == 4 else vocabulary))
    products = rows * (4 * vocabulary + wide * reduced) + trained * head * size + 2 * rows * model.width * size
    held = tokens * model.width * size + trained * 4 * vocabulary * model.width + head * filled
    return held + max(softmax, products)
