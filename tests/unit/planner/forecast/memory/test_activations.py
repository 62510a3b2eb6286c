"""Against Korthikanti et al. (2022), whose numbers are for Megatron's kernels, and against this trainer's own count."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures.planned_models import GPT2, LLAMA
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.ranks import fullest
from trainwright.planner.counts.saved.activations import block_bytes as own_block_bytes
from trainwright.planner.counts.saved.activations import loss_bytes, saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.forecast.memory.activations import block_bytes, layer_bytes, our_bytes, transient_bytes
from trainwright.planner.forecast.memory.moments import input_bytes
from trainwright.planner.forecast.memory.states import case_of
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

GIB = 1 << 30
MEGATRON = StackMemory(kernels="fused", dropout=True)
WORK = Workload(
    sequence_tokens=2048, batch_tokens=2048 * 64, steps=1, precision="fp16", optimizer="adamw", fused_attention=False
)
GPT3 = replace(
    GPT2,
    layers=96,
    width=12288,
    heads=96,
    kv_heads=96,
    head_size=128,
    ffn_width=4 * 12288,
    vocabulary=51200,
    context_tokens=2048,
)


def case(model, plan, memory=MEGATRON, work=WORK, recompute="none"):
    return case_of(model, work, Layouts.of([plan], [recompute], work), memory)


@pytest.mark.parametrize(
    ("plan", "recompute", "factor"),
    [
        (ParallelPlan(sequence_parallel=False), "none", lambda t, scores: 34 + scores),
        (ParallelPlan(tp=8, sequence_parallel=False), "none", lambda t, scores: 10 + 24 / t + scores / t),
        (ParallelPlan(tp=8), "none", lambda t, scores: (34 + scores) / t),
        (ParallelPlan(tp=8), "selective", lambda t, scores: 34 / t),
    ],
)
def test_a_layer_keeps_what_its_equation_says(plan, recompute, factor):
    """Equations 1, 2, 4 and 6; norms' statistics are left out of both."""
    s, h, a = 2048, GPT3.width, GPT3.heads
    expected = s * h * factor(plan.tp, 5 * a * s / h)
    assert block_bytes(case(GPT3, plan, recompute=recompute), mixture=False)[0] == pytest.approx(expected, rel=1e-6)


def test_gated_feed_forwards_keep_three_tensors_fused_and_four_eager():
    fused, eager = StackMemory(kernels="fused"), StackMemory(kernels="eager")
    tokens = 2048 * 2 * LLAMA.ffn_width
    kept = [
        layer_bytes(case(LLAMA, ParallelPlan(), memory), mixture=False)["feed_forward"][0] for memory in (fused, eager)
    ]
    assert kept == [3 * tokens, 4 * tokens]


def test_compiled_layouts_keep_less():
    plain, compiled = (
        block_bytes(case(LLAMA, ParallelPlan(compile=on), StackMemory(kernels="eager")), mixture=False)[0]
        for on in (False, True)
    )
    assert compiled < 0.8 * plain


def test_selective_recomputation_drops_every_second_product():
    """Of torchtitan: of gate and up one is made again, and all that is between products, compiled or not."""
    memory = StackMemory(kernels="eager")
    selective, compiled = (
        block_bytes(case(LLAMA, ParallelPlan(compile=on), memory, recompute="selective"), mixture=False)[0]
        for on in (False, True)
    )
    none = block_bytes(case(LLAMA, ParallelPlan(compile=True), memory), mixture=False)[0]
    assert selective == compiled
    scores = 2048 * 2048 * LLAMA.heads * 2
    assert none - compiled == 2048 * 2 * LLAMA.ffn_width + scores


def test_methods_that_train_no_product_keep_no_input_for_it():
    memory = StackMemory(kernels="eager", adapter_input_bytes=4.0)
    low_rank, norms = (
        block_bytes(
            case(LLAMA, ParallelPlan(), memory, replace(WORK, adapter=Adapter(rank=8, method=method))), mixture=False
        )[0]
        for method in ("lora", "ln_tuning")
    )
    assert low_rank - norms == 2 * 4 * 2048 * LLAMA.width


def test_adapters_of_one_wide_product_keep_one_input():
    work = replace(WORK, adapter=Adapter(rank=8, targets=("query", "key", "value", "output")))
    memory = StackMemory(kernels="eager", adapter_input_bytes=3.0)
    apart, wide = (
        block_bytes(case(LLAMA, ParallelPlan(), each, work), mixture=False)[0]
        for each in (memory, replace(memory, fused_queries=True))
    )
    assert apart - wide == 2 * 3 * 2048 * LLAMA.width


def test_methods_keep_what_their_code_does():
    """PEFT's layers: IA3 its scaled results of attention, inputs in fp32 elsewhere; OSF inputs as if it trained all."""
    memory, tokens, size = StackMemory(kernels="eager", adapter_input_bytes=4.0), 2048, 2

    def kept(method, *targets):
        work = replace(WORK, adapter=Adapter(rank=8, targets=targets, method=method))
        return block_bytes(case(LLAMA, ParallelPlan(), memory, work), mixture=False)[0]

    nothing, keys = kept("ia3"), LLAMA.kv_heads * LLAMA.head_size
    assert kept("ia3", "query", "value") - nothing == tokens * size * (LLAMA.width + keys)
    assert kept("ia3", "down") - nothing == kept("lora", "down") - nothing == tokens * 4 * LLAMA.ffn_width
    assert kept("lora", "query", "value") - nothing == tokens * 2 * 4 * LLAMA.width
    whole = block_bytes(case(LLAMA, ParallelPlan(), memory), mixture=False)[0]
    assert kept("osf", "query", "down") == whole


def test_adapters_beside_no_expert_keep_the_inputs_of_shared_experts_alone():
    """One layer of DeepSeek-V3's shape: 8 of 256 experts for a token, and a shared one; all of width 2048."""
    model, memory = catalogue_model("deepseek-v3"), StackMemory(kernels="fused", adapter_input_bytes=3.0)
    names = ("gate", "up", "down")
    kept = {}
    for experts in (True, False):
        for targets in (names, ()):
            work = replace(WORK, adapter=Adapter(rank=8, targets=targets, experts=experts), expert_imbalance=1.0)
            kept[experts, bool(targets)] = block_bytes(case(model, ParallelPlan(), memory, work), mixture=True)[0]
    # The adapter's copy of the last product's input, which a frozen product does not keep; gate's and up's copies of
    # the shared expert's input.
    last, first = 2048 * 3 * 2048, 2 * 3 * 2048 * model.width
    assert kept[False, True] - kept[False, False] == last + first
    assert kept[True, True] - kept[True, False] == last + first + 8 * last


def test_products_with_quantised_weights_may_return_fp32():
    """QLoRA of a 7B model on one device keeps twice as much for each layer as on two (fms-acceleration's benchmark)."""
    work = replace(WORK, adapter=Adapter(rank=8, frozen="nf4"))
    memory = StackMemory(kernels="eager", quantised_fp32=True)
    alone, sharded = ParallelPlan(), ParallelPlan(dp_shard=2, zero_stage=3)
    for used, plan, factor in (
        (memory, alone, 2),
        (memory, sharded, 1),
        (replace(memory, quantised_fp32=False), alone, 1),
    ):
        asked = case(LLAMA, plan, used, work)
        assert input_bytes(asked)[0] == factor * 2 * 2048 * LLAMA.width
    full = case(LLAMA, alone, memory, replace(work, precision="fp32"))
    assert block_bytes(case(LLAMA, alone, memory, work), mixture=False)[0] == block_bytes(full, mixture=False)[0]
    assert not case(LLAMA, alone, memory, replace(WORK, adapter=Adapter(rank=8))).widened.any()


def test_frozen_products_keep_no_input_unless_their_library_does():
    adapter = Adapter(rank=8, targets=("query",), frozen="nf4")
    work = replace(WORK, adapter=adapter)
    memory = StackMemory(kernels="fused", adapter_input_bytes=0.0)
    full, frozen, kept_inputs = (
        block_bytes(case(LLAMA, ParallelPlan(), each, used), mixture=False)[0]
        for each, used in ((memory, WORK), (memory, work), (replace(memory, quantised_inputs=True), work))
    )
    assert full - frozen == 2048 * 2 * (2 * LLAMA.width + LLAMA.ffn_width)
    assert kept_inputs == full


def test_each_of_a_tokens_experts_keeps_its_copy():
    model = catalogue_model("mixtral-8x7b")
    two = layer_bytes(case(model, ParallelPlan()), mixture=True)["feed_forward"][0]
    one = replace(model, experts=replace(model.experts, active=1))
    half = layer_bytes(case(one, ParallelPlan()), mixture=True)["feed_forward"][0]
    router = 2048 * 8 * model.experts.count
    assert two - router == pytest.approx(2 * (half - router))


def test_deepseeks_software_keeps_what_its_paper_says():
    """arXiv 2412.19437, sections 3.2.3 and 3.3.2, added up by hand for a token of a block with experts."""
    model = catalogue_model("deepseek-v3")
    work = replace(WORK, precision="fp8", fused_attention=True, expert_imbalance=1.0)
    plan = ParallelPlan(dp_shard=64, ep=64, zero_stage=1)
    kept = block_bytes(case(model, plan, read_stack("hai-llm").memory, work), mixture=True)[0] / 2048
    norms = 2 * 2 * 7168  # inputs alone, in 16 bits
    latents = 2 * (1536 + 512 + 64)  # queries, keys and values are made of them again
    attended = 128 * (1.5 * 128 + 4)  # in 12 bits, with a statistic for each head
    routed = 8 * (7168 + 2 * 2048)  # tokens sent to experts, and what goes into their gates, in 8 bits
    shared, router = 2 * 2048, 2 * 4 * 256
    assert kept == pytest.approx(norms + latents + attended + routed + shared + router)


def test_in_sixteen_bits_it_keeps_nothing_in_eight():
    model, memory = catalogue_model("deepseek-v3"), read_stack("hai-llm").memory
    work = replace(WORK, precision="bf16", fused_attention=True)
    wide = replace(memory, narrow_inputs=False)
    one, other = (block_bytes(case(model, ParallelPlan(), each, work), mixture=True)[0] for each in (memory, wide))
    assert one == other


def test_memory_and_time_know_one_load_of_the_fullest_rank():
    model, plan = catalogue_model("mixtral-8x7b"), ParallelPlan(dp_shard=8, ep=8)
    asked = case(model, plan)
    load = fullest(model, WORK, asked.layouts)[0]
    even = case(model, plan, work=replace(WORK, expert_imbalance=1.0))
    full, mean = (layer_bytes(each, mixture=True)["feed_forward"][0] - 2048 * 8 * 8 for each in (asked, even))
    assert load > 1.2 and full == pytest.approx(load * mean)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_this_trainer_is_counted_tensor_by_tensor(precision, compiled):
    work = replace(WORK, precision=precision, fused_attention=True)
    plans = [ParallelPlan(micro_batch_sequences=n, compile=compiled) for n in (1, 4, 1)]
    asked = case_of(LLAMA, work, Layouts.of(plans, ["none"] * 3, work), read_stack("trainwright").memory)
    saved = our_bytes(asked)
    for place, sequences in enumerate((1, 4, 1)):
        batch = MicroBatch(
            sequences=sequences, sequence_tokens=2048, dtype=precision, device_kind="cuda", compiled=compiled
        )
        assert saved.dense.block[place] == own_block_bytes(LLAMA, batch)
        assert saved.loss[place] == loss_bytes(LLAMA, batch)
        assert saved.beside[place] + LLAMA.layers * saved.dense.block[place] == saved_bytes(LLAMA, batch)
    assert (block_bytes(asked, mixture=False) == saved.dense.block).all()


def test_gradients_in_flight_are_divided_with_the_feed_forward():
    work = replace(WORK, fused_attention=True)
    one, eight = (transient_bytes(case(GPT3, ParallelPlan(tp=n), work=work), mixture=False) for n in (1, 8))
    assert np.allclose(one - eight, 2 * 2 * GPT3.ffn_width * 2048 * 7 / 8)


def test_scores_go_backward_when_the_feed_forward_is_free():
    """Fused kernels write the softmax's gradient over the scores': one more score tensor than the block keeps.

    By hand, in units of tokens x width: 19 of the feed-forward and 2 of its norm are free (Korthikanti et al., section
    4.1); a tensor of scores has 2 a s / h.
    """
    work = replace(WORK, fused_attention=False)
    scores = 2 * GPT3.heads * 8192 / GPT3.width
    longer = replace(work, sequence_tokens=8192)
    for asked, expected in ((work, 2 * 2 * 4 + 2 * 2), (longer, scores - 19 - 2)):
        transient = transient_bytes(case(GPT3, ParallelPlan(), work=asked), mixture=False)[0]
        assert transient == pytest.approx(expected * GPT3.width * asked.sequence_tokens, rel=0.01)
    again = case(GPT3, ParallelPlan(), work=longer, recompute="selective")
    more = transient_bytes(again, mixture=False)[0] - transient
    assert more == pytest.approx(5 * GPT3.heads * 8192**2)
