"""Bytes against what autograd saves in the real module, each storage once."""

import gc
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.flex import flex_on_processor
from fixtures.planned_models import GPT2, LLAMA
from fixtures.tiny_models import spec as tiny_spec
from trainwright.model.adapters.attach import attach, initialise
from trainwright.model.attention import document_positions
from trainwright.model.decoder import Decoder
from trainwright.model.encoder.network import Encoder
from trainwright.model.losses import linear_cross_entropy
from trainwright.model.parallel.tensor import cut_matrices
from trainwright.planner.counts.adapters import adapter_of, placed
from trainwright.planner.counts.pieces import WHOLE_SCORES_TOKENS
from trainwright.planner.counts.saved.activations import (
    block_bytes,
    loss_bytes,
    saved_bytes,
)
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import LiveBytes, SavedBytes
from trainwright.runtime.mesh import mesh_of
from trainwright.spec.families.family import DECODER, FAMILY
from trainwright.spec.model import FAMILIES
from trainwright.spec.parts.adaptation import LowRank
from trainwright.spec.parts.dropout import NO_DROPOUT, Dropout
from trainwright.spec.workload import KernelChoice, ParallelPlan


def batch_of(sequences, tokens, dtype, **more):
    return MicroBatch(sequences=sequences, sequence_tokens=tokens, dtype=dtype, device_kind="cpu", **more)


def saved(spec, batch, *, recompute="none", recomputed=None, share=lambda model: None):
    network = Encoder if spec.kind == "encoder" else Decoder
    model = network(spec, dtype=DTYPES[batch.dtype], recompute=recompute)
    if recomputed is not None:
        model.recompute_in(recomputed)
    model.use(batch.kernels)
    model.initialise(0)
    share(model)
    counter, live = SavedBytes(model.parameters()), LiveBytes()
    with counter.counting(), live:
        tokens = torch.zeros(batch.sequences, batch.sequence_tokens, dtype=torch.long)
        documents = torch.arange(batch.sequence_tokens).div(5, rounding_mode="floor").repeat(batch.sequences, 1)
        whole = {"documents": documents, "positions": document_positions(documents)} if batch.document_masking else {}
        if spec.kind == "encoder" and spec.positions == "rope":
            whole.pop("positions", None)  # as its tasks do
        before = live.now()
        whole |= {"samples": torch.arange(batch.sequences)} if spec.dropout else {}
        hidden = model(tokens, **whole)
    assert hidden.requires_grad  # alive until counted: a freed storage could be counted twice
    if recompute != "none":  # of what is computed again, inputs and kept results are no tensors that autograd saves
        made = live.now().keys() - before.keys()
        gc.collect()  # what torch computes without a kernel is held by cycles
        live.now = lambda known=live.now: {place: size for place, size in known().items() if place in made}
        counter.add_live(live, result=hidden)
    return counter.total_bytes


@pytest.mark.parametrize("window", [16, 60, 62])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("attention", ["math", "sdpa"])
@pytest.mark.parametrize(("family", "dtype"), [("bert", "fp32"), ("modernbert", "fp32"), ("modernbert", "bf16")])
def test_an_encoder_keeps_what_is_counted(family, dtype, attention, masked, window):
    """Of windows that reach 8, 30 and 31 tokens to each side of sequences of 32: the last hides nothing."""
    shape = tiny_spec(family, layers=4)
    if family == "modernbert":
        shape = replace(shape, window_tokens=window, window_layers=(1, 2))
    batch = batch_of(3, 32, dtype, document_masking=masked, kernels=KernelChoice(attention=attention))
    assert saved_bytes(shape, batch) == saved(shape, batch)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_an_encoder_that_is_computed_again_keeps_what_is_counted(family):
    shape, batch = tiny_spec(family, layers=4), batch_of(3, 32, "fp32")
    assert saved_bytes(shape, batch, recompute="full") == saved(shape, batch, recompute="full")


@pytest.mark.parametrize("by_tokens", [True, False])
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_rank_of_shared_matrices_keeps_its_part(shape, dtype, recompute, by_tokens):
    shape = replace(shape, heads=4, kv_heads=min(2, shape.kv_heads), head_size=shape.width // 4)
    batch = batch_of(3, 64, dtype, tp=2, by_tokens=by_tokens)
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    mesh = mesh_of(ParallelPlan(tp=2, sequence_parallel=by_tokens), "cpu")
    try:
        seen = saved(shape, batch, recompute=recompute, share=lambda model: cut_matrices(model, mesh))
    finally:
        dist.destroy_process_group()
    assert saved_bytes(shape, batch, recompute=recompute) == seen


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILY.load(name).network == DECODER])
def test_every_decoder_keeps_what_is_counted(family):
    sizes = {"width": 64, "head_size": 16, "ffn_width": 96, "context_tokens": 32, "layers": 3}
    shape = tiny_spec(family, **sizes)
    shape = shape if shape.window_tokens is None else replace(shape, window_tokens=8)
    cases = (
        ("fp32", "math", False, "none"),
        ("bf16", "sdpa", False, "none"),
        ("bf16", "math", True, "selective"),
        ("fp32", "sdpa", True, "selective"),
    )
    for dtype, kernel, masking, recompute in cases:
        batch = batch_of(2, 32, dtype, kernels=KernelChoice(attention=kernel), document_masking=masking)
        assert saved_bytes(shape, batch, recompute=recompute) == saved(shape, batch, recompute=recompute)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_whole_scores_are_counted_exactly(shape, dtype):
    batch = batch_of(3, 64, dtype)
    assert saved_bytes(shape, batch) == saved(shape, batch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("spec", [LLAMA, replace(LLAMA, kv_heads=1), GPT2], ids=["llama", "grouped", "gpt2"])
def test_long_sequences_use_the_fused_kernel(spec, dtype):
    tokens = WHOLE_SCORES_TOKENS + 64
    small = replace(spec, width=64, heads=2, kv_heads=min(2, spec.kv_heads), head_size=32, ffn_width=96, layers=1)
    small = replace(small, context_tokens=tokens)
    batch = batch_of(1, tokens, dtype)
    assert saved_bytes(small, batch) == saved(small, batch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("kernel", "tokens"), [("sdpa", 64), ("math", WHOLE_SCORES_TOKENS + 64)])
def test_a_kernel_that_is_asked_for_is_the_one_that_is_counted(kernel, tokens, dtype):
    spec = replace(GPT2, width=64, heads=2, kv_heads=2, head_size=32, ffn_width=96, layers=2, context_tokens=tokens)
    usual = batch_of(1, tokens, dtype)
    asked = replace(usual, kernels=KernelChoice(attention=kernel))
    assert saved_bytes(spec, asked) == saved(spec, asked) != saved_bytes(spec, usual)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spec", [LLAMA, replace(LLAMA, kv_heads=1), GPT2], ids=["llama", "grouped", "gpt2"])
def test_flex_attention_keeps_lists_of_blocks_in_place_of_a_mask(spec, masked, recompute):
    """Where torch computes it without a kernel, it keeps what the kernel keeps, and the greatest score of each row."""
    spec = replace(spec, width=64, heads=2, kv_heads=min(2, spec.kv_heads), head_size=32, ffn_width=96, layers=2)
    spec = replace(spec, context_tokens=384)
    whole = batch_of(2, 384, "fp32", document_masking=masked, kernels=KernelChoice(attention="sdpa"))
    asked = replace(whole, kernels=KernelChoice(attention="flex"))
    with flex_on_processor():
        seen = saved(spec, asked, recompute=recompute)
    rows, documents = 2 * spec.heads * 384, 8 * 2 * 384
    # Documents are there before the pass, where what is alive is counted.
    counted = seen - 4 * rows * spec.layers if recompute == "none" else seen + masked * documents
    assert saved_bytes(spec, asked, recompute=recompute) == counted
    if masked:
        assert counted < saved_bytes(spec, whole, recompute=recompute)


@pytest.mark.parametrize("chunk", [1536, "whole"])
def test_the_loss_holds_the_chunk_that_is_asked_for(chunk):
    spec = replace(LLAMA, vocabulary=4096)
    hidden = torch.randn(2048, spec.width, requires_grad=True)
    weight = torch.randn(4096, spec.width, requires_grad=True)
    with LiveBytes() as live:
        linear_cross_entropy(hidden, weight, torch.zeros(2048, dtype=torch.long), chunk=chunk)
    asked = batch_of(16, 128, "fp32", kernels=KernelChoice(loss_chunk_tokens=chunk))
    assert loss_bytes(spec, asked) == pytest.approx(live.peak_bytes, rel=0.3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_loss_holds_the_rows_that_fill_the_head_up(dtype):
    spec, chunk, multiple = replace(LLAMA, vocabulary=4097), 1024, 2048
    narrow = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    hidden = torch.randn(2048, spec.width, dtype=narrow, requires_grad=True)
    weight = torch.randn(4097, spec.width, requires_grad=True)
    with LiveBytes() as live:
        linear_cross_entropy(hidden, weight, torch.zeros(2048, dtype=torch.long), chunk=chunk, multiple=multiple)
    asked = batch_of(16, 128, dtype, kernels=KernelChoice(loss_chunk_tokens=chunk, pad_vocabulary=multiple))
    assert loss_bytes(spec, asked) == pytest.approx(live.peak_bytes, rel=0.05)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [64, WHOLE_SCORES_TOKENS + 64])
@pytest.mark.parametrize("rates", [NO_DROPOUT, Dropout(residual=0.1, embedding=0.1), Dropout(attention=0.1)])
@pytest.mark.parametrize("spec", [LLAMA, replace(LLAMA, kv_heads=1), GPT2], ids=["llama", "grouped", "gpt2"])
def test_selective_recomputation_keeps_the_results_of_products(spec, rates, tokens, masked, dtype):
    small = replace(spec, width=64, heads=2, kv_heads=min(2, spec.kv_heads), head_size=32, ffn_width=96, layers=3)
    small = replace(small, context_tokens=tokens, dropout=rates)
    batch = batch_of(2, tokens, dtype, document_masking=masked)
    assert saved_bytes(small, batch, recompute="selective") == saved(small, batch, recompute="selective")


@pytest.mark.parametrize("recompute", ["full", "selective"])
@pytest.mark.parametrize("recomputed", [0, 1, 2, 3])
def test_blocks_that_a_budget_leaves_out_keep_everything(recomputed, recompute):
    spec = replace(LLAMA, layers=3)
    batch = batch_of(2, 64, "bf16")
    kept = saved_bytes(spec, batch, recompute=recompute, recomputed=recomputed)
    assert kept == saved(spec, batch, recompute=recompute, recomputed=recomputed)


def test_recomputed_blocks_keep_their_input_alone():
    batch = batch_of(2, 64, "bf16")
    kept = saved_bytes(LLAMA, batch, recompute="full")
    assert kept < saved_bytes(LLAMA, batch) / 3
    assert saved_bytes(LLAMA, batch) - kept == LLAMA.layers * (block_bytes(LLAMA, batch) - 128 * LLAMA.width * 2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("vocabulary", [512, 4096])
def test_the_loss_holds_about_what_is_counted(dtype, vocabulary):
    spec = replace(LLAMA, vocabulary=vocabulary)
    hidden = torch.randn(1024, spec.width, dtype=DTYPES[dtype], requires_grad=True)
    weight = torch.randn(vocabulary, spec.width, requires_grad=True)
    with LiveBytes() as live:
        linear_cross_entropy(hidden, weight, torch.zeros(1024, dtype=torch.long))
    assert loss_bytes(spec, batch_of(8, 128, dtype)) == pytest.approx(live.peak_bytes, rel=0.3)


@pytest.mark.parametrize("spec", [LLAMA, GPT2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("tokens", [64, WHOLE_SCORES_TOKENS + 64])
def test_all_blocks_keep_one_mask_of_documents(spec, tokens, dtype, recompute):
    small = replace(spec, width=64, heads=2, kv_heads=2, head_size=32, ffn_width=96, layers=3, context_tokens=tokens)
    batch = batch_of(2, tokens, dtype, document_masking=True)
    assert saved_bytes(small, batch, recompute=recompute) == saved(small, batch, recompute=recompute)


RATES = [
    Dropout(residual=0.1),
    Dropout(embedding=0.1),
    Dropout(attention=0.1),
    Dropout(residual=0.1, embedding=0.2, attention=0.3),
    Dropout(depth=0.1),
]


@pytest.mark.parametrize("rates", RATES, ids=["residual", "embedding", "attention", "all", "depth"])
@pytest.mark.parametrize("spec", [LLAMA, replace(LLAMA, kv_heads=1), GPT2], ids=["llama", "grouped", "gpt2"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("tokens", [64, WHOLE_SCORES_TOKENS + 64])
@pytest.mark.parametrize("masked", [False, True])
def test_no_mask_of_dropout_is_kept(rates, spec, tokens, masked, recompute):
    small = replace(spec, width=64, heads=2, kv_heads=min(2, spec.kv_heads), head_size=32, ffn_width=96, layers=2)
    small = replace(small, context_tokens=tokens, dropout=rates)
    batch = batch_of(2, tokens, "bf16", document_masking=masked)
    kept = saved_bytes(small, batch, recompute=recompute)
    assert kept == saved(small, batch, recompute=recompute)
    without = saved_bytes(replace(small, dropout=NO_DROPOUT), batch, recompute=recompute)
    if rates.attention == 0 or tokens <= WHOLE_SCORES_TOKENS:
        assert kept - without <= 8 * (batch.sequences + tokens), "the keys of sequences and their places alone"


def test_compiled_code_keeps_less():
    assert saved_bytes(LLAMA, batch_of(2, 64, "bf16", compiled=True)) < saved_bytes(LLAMA, batch_of(2, 64, "bf16"))


def adapting(words, magnitude):
    """Puts adapters beside some layers of a model, whose other weights are frozen, in the dtype of products."""

    def adapt(model):
        attach(model, dict.fromkeys(placed(model.spec, words), LowRank(rank=4, scale=0.5)), magnitude=magnitude)
        initialise(model, 0)
        for parameter in model.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(model.compute_dtype)

    return adapt


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("method", ["lora", "dora"])
@pytest.mark.parametrize("words", [["all-linear"], ["attention"], ["query", "value"]], ids=lambda words: words[0])
@pytest.mark.parametrize("spec", [LLAMA, replace(LLAMA, kv_heads=1), GPT2], ids=["llama", "grouped", "gpt2"])
def test_beside_adapters_frozen_matrices_keep_nothing_of_their_own(spec, words, method, dtype):
    """To a percent: the first block keeps a little less, where nothing before it is trained."""
    spec = replace(spec, layers=4, width=64, heads=2, kv_heads=min(2, spec.kv_heads), head_size=32, ffn_width=96)
    adapter = adapter_of(spec, words, rank=4, frozen="bf16", method=method)
    batch = batch_of(2, 64, dtype, adapter=adapter, kernels=KernelChoice(attention="sdpa"))
    seen = saved(spec, batch, share=adapting(words, method == "dora"))
    assert saved_bytes(spec, batch) == pytest.approx(seen, rel=0.01)
    assert seen < 0.99 * saved_bytes(spec, replace(batch, adapter=None)) or method == "dora" or spec.bias


@pytest.mark.parametrize(("dtype", "multiple"), [("fp32", 64), ("bf16", 1), ("bf16", 64)])
def test_the_loss_of_a_frozen_head_has_no_gradient_of_it(dtype, multiple):
    spec = replace(LLAMA, vocabulary=4097)
    adapter = adapter_of(spec, ["all-linear"], rank=4, frozen="bf16")
    hidden = torch.randn(1024, spec.width, dtype=DTYPES[dtype], requires_grad=True)
    weight = torch.randn(4097, spec.width, dtype=DTYPES[dtype])
    with LiveBytes() as live:
        linear_cross_entropy(hidden, weight, torch.zeros(1024, dtype=torch.long), chunk=256, multiple=multiple)
    kernels = KernelChoice(loss_chunk_tokens=256, pad_vocabulary=multiple)
    asked = batch_of(8, 128, dtype, kernels=kernels, adapter=adapter)
    assert loss_bytes(spec, asked) == pytest.approx(live.peak_bytes, rel=0.3)
    assert loss_bytes(spec, replace(asked, adapter=None)) > 1.2 * live.peak_bytes
