"""Mixtures, latent attention and sinks against what autograd saves in the real module, each storage once."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from fixtures.tiny_models import spec as tiny_spec
from trainwright.model.attention import document_positions
from trainwright.model.decoder import Decoder
from trainwright.model.experts.balance import Share
from trainwright.model.layers import make_norm
from trainwright.model.parallel.experts import divide_experts
from trainwright.planner.counts.pieces import WHOLE_SCORES_TOKENS
from trainwright.planner.counts.saved.activations import saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.counts.saved.parts import cast_bytes, keeps_normed, mixture_products_bytes, normed_bytes
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import LiveBytes, SavedBytes
from trainwright.runtime.mesh import ExpertMesh, mesh_of
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.workload import KernelChoice, ParallelPlan

SIZES = {"width": 64, "head_size": 16, "ffn_width": 96, "context_tokens": 32, "layers": 3}
MIXTRAL = Experts(count=4, active=2, ffn_width=40)
DEEPSEEK = Experts(
    count=8, active=3, ffn_width=24, shared_ffn_width=48, dense_layers=1, groups=4, active_groups=2, balance="bias"
)
MIXTURES = {
    "mixtral": MIXTRAL,
    "qwen2_moe": replace(MIXTRAL, normalised=False, shared_ffn_width=56, shared_gate=True),
    "deepseek_v3": replace(DEEPSEEK, scores="sigmoid", scale=2.5),
    "balanced": replace(DEEPSEEK, balance="loss", scores="sigmoid", z_weight=0.01),
    "alone": replace(MIXTRAL, loss_weight=0.0, z_weight=0.01),
    "limited": replace(MIXTRAL, limit=7.0, bias=True, router_bias=True),
}
LATENT = LatentAttention(query_rank=24, kv_rank=20, rope_size=8, value_size=12)
KINDS = {name: tiny_spec("mixtral", experts=experts, **SIZES) for name, experts in MIXTURES.items()}
KINDS |= {
    "relu": tiny_spec("mixtral", experts=MIXTURES["qwen2_moe"], activation="relu", **SIZES),
    "latent": tiny_spec("deepseek_v2", latent=LATENT, kv_heads=4, **SIZES),
    "latent, wide queries": tiny_spec("deepseek_v2", latent=replace(LATENT, query_rank=None), kv_heads=4, **SIZES),
    "both": tiny_spec("deepseek_v3", latent=LATENT, experts=MIXTURES["deepseek_v3"], kv_heads=4, **SIZES),
    "sinks": tiny_spec("gpt_oss", sinks=True, **SIZES | {"context_tokens": 32}),
}


def batch_of(sequences: int, tokens: int, dtype: str, **more: object) -> MicroBatch:
    return MicroBatch(sequences=sequences, sequence_tokens=tokens, dtype=dtype, device_kind="cpu", **more)


def saved(spec: ModelSpec, batch: MicroBatch, *, recompute: str = "none", among: ExpertMesh | None = None) -> int:
    model = Decoder(spec, dtype=DTYPES[batch.dtype], recompute=recompute)
    model.use(batch.kernels)
    model.initialise(0)
    share = torch.tensor(1.0)
    model.share = Share(share) if spec.experts else None
    if among is not None:
        divide_experts(model, among)
    counter, live = SavedBytes([*model.parameters(), *model.buffers(), share]), LiveBytes()
    with counter.counting(), live:
        tokens = torch.arange(batch.tokens).view(batch.sequences, batch.sequence_tokens) % spec.vocabulary
        documents = torch.arange(batch.sequence_tokens).div(5, rounding_mode="floor").repeat(batch.sequences, 1)
        whole = {"documents": documents, "positions": document_positions(documents)} if batch.document_masking else {}
        before = live.now()
        hidden = model(tokens, **whole)
    if recompute != "none":
        made = live.now().keys() - before.keys()
        gc.collect()
        live.now = lambda known=live.now: {place: size for place, size in known().items() if place in made}
        counter.add_live(live, result=hidden)
    return counter.total_bytes


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("dtype", "kernel"), [("fp32", "math"), ("bf16", "sdpa")])
@pytest.mark.parametrize("kind", KINDS)
def test_every_part_keeps_what_is_counted(kind, dtype, kernel, recompute):
    batch = batch_of(2, 32, dtype, kernels=KernelChoice(attention=kernel))
    assert saved_bytes(KINDS[kind], batch, recompute=recompute) == saved(KINDS[kind], batch, recompute=recompute)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kernel", ["math", "sdpa", "auto"])
@pytest.mark.parametrize("kind", ["both", "latent", "sinks"])
def test_one_sequence_documents_and_long_ones_are_counted_too(kind, kernel, dtype):
    shape = replace(KINDS[kind], context_tokens=WHOLE_SCORES_TOKENS + 32)
    for tokens, masked in ((32, True), (WHOLE_SCORES_TOKENS + 32, False)):
        batch = batch_of(1, tokens, dtype, document_masking=masked, kernels=KernelChoice(attention=kernel))
        assert saved_bytes(shape, batch) == saved(shape, batch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["mixtral", "deepseek_v3"])
def test_ranks_that_divide_experts_keep_their_part(kind, dtype):
    """Without values all experts are as full, and the order of received rows is its own inverse: kept once."""
    batch = batch_of(2, 32, dtype, ep=2)
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        among = mesh_of(ParallelPlan(dp_shard=2, ep=2), "cpu").experts
        with FakeTensorMode():
            seen = saved(KINDS[kind], batch, among=among)
    finally:
        dist.destroy_process_group()
    shape = KINDS[kind]
    once = shape.moe_layers * batch.tokens * MIXTURES[kind].active * 8
    assert saved_bytes(shape, batch) - once == seen


def test_what_the_fullest_rank_receives_counts():
    rows, shape = 64 * MIXTRAL.active, KINDS["mixtral"]
    even, full = (saved_bytes(shape, batch_of(2, 32, "bf16", ep=2, load=load)) for load in (1.0, 1.5))
    each = 2 * (shape.width + 4 * MIXTRAL.ffn_width) + 2 * 8
    assert full - even == shape.layers * rows // 2 * each


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_norm_keeps_what_is_counted(family, dtype):
    shape = tiny_spec(family)
    norm = make_norm(shape)
    for parameter in norm.parameters():
        torch.nn.init.ones_(parameter)
    x = torch.randn(6, shape.width, dtype=DTYPES[dtype], requires_grad=True)
    counter = SavedBytes(norm.parameters())
    with counter.counting():
        norm(x)
    assert normed_bytes(shape, batch_of(1, 6, dtype), rows=6, width=shape.width) == counter.total_bytes


def test_casts_are_of_one_kind_of_block_and_of_a_ranks_own_experts():
    shape, batch = KINDS["both"], batch_of(1, 32, "bf16")
    attention, dense = (cast_bytes(replace(shape, ffn_width=width), batch, mixture=False) for width in (1, 97))
    one = 3 * 64 * 2
    assert dense - attention == 96 * one
    whole, halves = (cast_bytes(shape, replace(batch, ep=ep), mixture=True) for ep in (1, 2))
    assert whole - halves == 8 * 24 * one // 2
    assert cast_bytes(shape, batch_of(1, 32, "fp32"), mixture=True) == 0


def test_products_of_shared_experts_are_kept_and_their_last_one_is_not():
    batch = batch_of(1, 32, "bf16")
    assert mixture_products_bytes(KINDS["mixtral"], batch) == 0
    assert mixture_products_bytes(KINDS["both"], batch) == 32 * (4 * 8 + 2 * 2 * 48)
    assert not keeps_normed(KINDS["mixtral"], batch)
    assert keeps_normed(KINDS["both"], batch)
