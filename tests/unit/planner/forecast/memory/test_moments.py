"""Sums that anybody can do by hand, and activations as Korthikanti et al. (2022), figure 1, has them."""

from dataclasses import replace

import pytest

from fixtures.planned_models import GPT2, LLAMA
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.memory.moments import (
    MOMENTS,
    bucket_bytes,
    gathered_bytes,
    input_bytes,
    logits_bytes,
    moments_of,
    pass_bytes,
)
from trainwright.planner.forecast.memory.states import case_of, kept
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

GIB = 1 << 30
WORK = Workload(
    sequence_tokens=2048, batch_tokens=2048 * 256, steps=1, precision="bf16", optimizer="adamw", states="pure"
)
FUSED = StackMemory(kernels="fused")


def case(model, plan, memory=FUSED, work=WORK, recompute="none"):
    return case_of(model, work, Layouts.of([plan], [recompute], work), memory)


def moments(asked):
    return dict(zip(MOMENTS, moments_of(asked, kept(asked)), strict=False))


@pytest.mark.parametrize(
    ("layers", "width", "heads", "pp", "virtual", "full_gib", "selective_gib"),
    [(96, 12288, 96, 8, 3, 66.84375, 12.3515625), (128, 25600, 160, 64, 1, 131.25, 26.5625)],
    ids=["gpt3-175b", "1t"],
)
def test_the_first_stage_keeps_what_the_paper_says(layers, width, heads, pp, virtual, full_gib, selective_gib):
    model = replace(
        GPT2,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=width // heads,
        ffn_width=4 * width,
        vocabulary=51200,
        context_tokens=2048,
    )
    work = replace(WORK, precision="fp16", fused_attention=False)
    memory = StackMemory(kernels="fused", dropout=True)
    schedule = "interleaved" if virtual > 1 else "1f1b"
    for sequence_parallel, recompute, gib in ((False, "none", full_gib), (True, "selective", selective_gib)):
        plan = ParallelPlan(tp=8, pp=pp, sequence_parallel=sequence_parallel, schedule=schedule, virtual_stages=virtual)
        asked = case(model, plan, memory, work, recompute)
        saved = pass_bytes(asked).saved[0, 0]
        # The figure leaves out the mask of the embedding's dropout, s b h for each pass in flight (section 4.3).
        mask = 2048 * width / (8 if sequence_parallel else 1) * asked.stages.passes[0, 0]
        assert (saved - mask) / GIB == pytest.approx(gib, rel=0.02)


def test_pure_bf16_peaks_in_the_update_at_five_times_the_weights():
    asked = case(catalogue_model("mistral-7b"), ParallelPlan(), recompute="full")
    states, peaks = kept(asked), moments(asked)
    peak = peaks["update"].total + states.weights + states.optimizer
    assert peak[0, 0] == pytest.approx(5 * 2 * total_parameters(asked.model))
    assert peak[0, 0] / GIB == pytest.approx(67.46, rel=0.001)  # fms-acceleration, A100, foreach AdamW


def test_full_recomputation_keeps_inputs_and_one_block():
    full, none = (case(LLAMA, ParallelPlan(), recompute=name) for name in ("full", "none"))
    assert pass_bytes(full).saved[0, 0] == LLAMA.layers * input_bytes(full)[0]
    assert pass_bytes(full).block[0, 0] * LLAMA.layers == pass_bytes(none).saved[0, 0]
    assert pass_bytes(none).block[0, 0] == 0


def test_logits_are_on_the_last_stage_and_divided_by_tensor_parallelism():
    memory = StackMemory(logit_bytes=10.0, hidden_copies=0.0)
    one, divided = (logits_bytes(case(LLAMA, ParallelPlan(tp=tp, pp=2), memory)) for tp in (1, 2))
    assert one[:, 0].tolist() == [0, 10 * 2048 * LLAMA.vocabulary]
    assert (divided * 2 == one).all()
    fused = logits_bytes(case(LLAMA, ParallelPlan(), memory, replace(WORK, fused_loss=True)))
    assert fused[0, 0] == memory.fused_logit_bytes * 2048 * LLAMA.vocabulary


def test_fsdp_gathers_a_layer_or_two_but_a_whole_stage_in_a_pipeline():
    model = catalogue_model("llama3-8b")
    asked = case(model, ParallelPlan(dp_shard=8))
    layer, root = 2 * asked.stages.layer[0, 0], 2 * asked.stages.tables[0, 0]
    at_loss, backward = gathered_bytes(asked)
    assert at_loss[0, 0] == root + layer
    assert backward[0, 0] == root + 3 * layer
    assert gathered_bytes(case(model, ParallelPlan()))[0][0, 0] == 0
    piped = case(model, ParallelPlan(dp_shard=4, pp=2))
    assert gathered_bytes(piped)[0][0, 0] == 6 * piped.stages.total[0, 0]


def test_gradients_are_there_at_the_loss_where_they_accumulate_or_stay():
    alone = replace(WORK, batch_tokens=2048)
    for work, memory, there in (
        (alone, FUSED, False),
        (WORK, FUSED, True),
        (alone, replace(FUSED, flat_gradients=True), True),
    ):
        peaks = moments(case(LLAMA, ParallelPlan(), memory, work))
        assert (peaks["loss"].gradients[0, 0] > 0) == there
        assert (peaks["end"].gradients == peaks["update"].gradients).all()


def test_buckets_are_no_larger_than_what_is_in_them():
    small = case(LLAMA, ParallelPlan(dp_replicate=2, zero_stage=0), replace(FUSED, bucket_elements=1e12))
    assert bucket_bytes(small, kept(small))[0, 0] == 2 * 2 * small.stages.dense[0, 0]
    copies = case(LLAMA, ParallelPlan(dp_replicate=2, zero_stage=0), replace(FUSED, reduce_copies=1.0))
    assert bucket_bytes(copies, kept(copies))[0, 0] == kept(copies).gradients[0, 0]
    shares = case(LLAMA, ParallelPlan(dp_shard=2, zero_stage=1), replace(FUSED, reduce_copies=0.5))
    assert bucket_bytes(shares, kept(shares))[0, 0] == kept(shares).gradients[0, 0] / 2
    scattered = case(LLAMA, ParallelPlan(dp_shard=2, zero_stage=2), replace(FUSED, reduce_copies=1.0))
    assert bucket_bytes(scattered, kept(scattered))[0, 0] == 0
    alone = case(LLAMA, ParallelPlan(), replace(FUSED, reduce_copies=1.0))
    assert bucket_bytes(alone, kept(alone))[0, 0] == 0


def test_some_frameworks_load_whole_weights_before_they_shard_them():
    work = replace(WORK, adapter=Adapter(rank=8))
    asked = case(LLAMA, ParallelPlan(dp_shard=4), replace(FUSED, loads_whole=True), work)
    assert moments(asked)["load"].communication[0, 0] == 2 * asked.stages.total[0, 0]
    assert "load" not in moments(case(LLAMA, ParallelPlan(dp_shard=4), FUSED, work))


def test_autocast_keeps_cast_weights_until_the_backward_pass_is_over():
    for states, dp_shard, there in (("fp32", 1, True), ("fp32", 8, False), ("pure", 1, False)):
        work = replace(WORK, states=states)
        asked = case(LLAMA, ParallelPlan(dp_shard=dp_shard), StackMemory(kernels="eager"), work)
        peaks = moments(asked)
        expected = 2 * asked.stages.total[0, 0] if there else 0
        assert peaks["loss"].workspace[0, 0] == peaks["end"].workspace[0, 0] == expected


def test_a_pipeline_engine_that_frees_nothing_holds_logits_of_two_micro_batches_on_its_last_stage():
    """DeepSpeed's ``runtime/pipe/engine.py``: 4 bytes a logit of the last two outputs, one tensor of those sent on."""
    model = replace(GPT2, vocabulary=50257)
    frees, holds = (
        case(model, ParallelPlan(pp=2), replace(FUSED, holds_outputs=on), recompute="full") for on in (False, True)
    )
    logits = 4 * 2048 * 50257
    for name, more in (("loss", logits), ("backward", 2 * logits), ("update", 2 * logits)):
        first, last = moments(holds)[name].total - moments(frees)[name].total
        assert last[0] == pytest.approx(more)
        assert first[0] == pytest.approx(0 if name == "update" else 2 * 2 * 2048 * model.width)
    single = replace(WORK, batch_tokens=2048)
    once = case(model, ParallelPlan(pp=1), replace(FUSED, holds_outputs=True), work=single)
    assert moments(once)["backward"].logits[0, 0] == pytest.approx(logits)


def test_a_loss_of_few_tokens_at_once_holds_only_their_logits_and_its_copies_of_the_head():
    """TRL's chunks of 256 tokens: 12 bytes of each logit, and the head in fp32 and in autocast's 16 bits."""
    chunked = replace(FUSED, fused_logit_bytes=12.0, loss_chunk_tokens=256.0, loss_head_bytes=6.0, hidden_copies=0.0)
    work = replace(WORK, fused_loss=True)
    found = {size: case(LLAMA, ParallelPlan(micro_batch_sequences=size), chunked, work) for size in (1, 4)}
    expected = 512 * (12 * 256 + 6 * 256)
    assert LLAMA.vocabulary == 512 and LLAMA.width == 256
    assert [logits_bytes(each)[1, 0] for each in found.values()] == [expected, expected]
    whole = case(LLAMA, ParallelPlan(), replace(chunked, logit_bytes=14.0))
    assert logits_bytes(whole)[1, 0] == 512 * 14 * 2048
