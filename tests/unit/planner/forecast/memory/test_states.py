"""Against the ZeRO paper's table, GPT-3's well-known sizes, and what libraries print."""

from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import parameter_counts, total_parameters
from trainwright.planner.counts.ranks import expert_tp
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.memory.stages import stages_of
from trainwright.planner.forecast.memory.states import case_of, kept, shared, state_bytes
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=1024, batch_tokens=1 << 20, steps=1, precision="fp16", optimizer="adamw", states="mixed"
)
PLAIN = StackMemory(kernels="fused", update_copies=0.0)


def layouts(*plans, work=WORK):
    return Layouts.of(plans, [work.recompute] * len(plans), work)


def kept_bytes(model, work, *plans, memory=PLAIN):
    return kept(case_of(model, work, layouts(*plans, work=work), memory))


def test_zero_shares_as_its_paper_says():
    """Rajbhandari et al., 2020, figure 1: 7.5B parameters on 64 devices, 2 + 2 + 12 bytes for each."""
    plans = [ParallelPlan(dp_replicate=64, zero_stage=0), *(ParallelPlan(dp_shard=64, zero_stage=n) for n in (1, 2, 3))]
    states = kept_bytes(LLAMA, WORK, *plans)
    each = (states.weights + states.gradients + states.optimizer)[0] / total_parameters(LLAMA)
    assert 7.5 * each == pytest.approx([120, 31.4, 16.6, 1.88], rel=0.01)


def test_gpt3_in_fp32_is_known_to_everybody():
    gpt3 = replace(
        LLAMA,
        family="gpt2",
        layers=96,
        width=12288,
        heads=96,
        kv_heads=96,
        head_size=128,
        ffn_width=49152,
        vocabulary=50257,
        context_tokens=2048,
        tied=True,
        gated=False,
        norm="layernorm",
        positions="learned",
        bias=True,
    )
    states = kept_bytes(gpt3, replace(WORK, precision="fp32", states="fp32"), ParallelPlan())
    assert states.weights[0, 0] == pytest.approx(700e9, rel=0.01)
    assert (states.weights + states.optimizer)[0, 0] == pytest.approx(2100e9, rel=0.01)


@pytest.mark.parametrize(
    ("states", "precision", "memory", "expected"),
    [
        ("fp32", "bf16", PLAIN, (4, 4, 8)),
        ("mixed", "bf16", PLAIN, (2, 4, 12)),
        ("mixed", "fp16", PLAIN, (2, 2, 12)),
        ("mixed", "bf16", replace(PLAIN, reduced_gradients=True), (2, 2, 12)),
        ("mixed", "fp16", replace(PLAIN, master_gradients=True), (2, 2, 16)),
        ("mixed", "bf16", replace(PLAIN, master_gradients=True), (2, 6, 12)),
        ("pure", "bf16", PLAIN, (2, 2, 4)),
        ("mixed", "fp8", PLAIN, (4, 4, 12)),
        ("fp32", "fp32", PLAIN, (4, 4, 8)),
    ],
)
def test_bytes_of_a_parameter(states, precision, memory, expected):
    work = replace(WORK, states=states, precision=precision)
    each = state_bytes(case_of(LLAMA, work, layouts(ParallelPlan()), memory))
    assert (each.weight, each.gradient, each.optimizer) == expected


@pytest.mark.parametrize(("optimizer", "moments"), [("adamw", 8), ("sgd", 4), ("plain-sgd", 0)])
def test_optimizers_keep_what_they_need(optimizer, moments):
    work = replace(WORK, states="fp32", precision="bf16", optimizer=optimizer)
    assert state_bytes(case_of(LLAMA, work, layouts(ParallelPlan()), PLAIN)).optimizer == moments
    eight = replace(work, moments="int8")
    assert state_bytes(case_of(LLAMA, eight, layouts(ParallelPlan()), PLAIN)).optimizer == pytest.approx(
        moments / 4, 0.02
    )


def test_experts_are_divided_by_expert_parallelism_alone():
    model = catalogue_model("mixtral-8x7b")
    stages = stages_of(model, layouts(ParallelPlan(dp_shard=8), ParallelPlan(dp_shard=8, ep=8)))
    assert stages.experts[0] == pytest.approx([parameter_counts(model)["experts"] / n for n in (1, 8)])
    assert stages.dense[0, 0] == stages.dense[0, 1]
    case = case_of(model, WORK, layouts(ParallelPlan(dp_shard=8, ep=8, zero_stage=1)), PLAIN)
    # Each expert has one owner: its optimizer's state is not shared any more.
    assert shared(case, from_stage=1)[0, 0] == pytest.approx(stages.dense[0, 0] / 8 + stages.experts[0, 1])


def test_narrow_experts_are_not_divided_by_tensor_parallelism():
    wide, narrow = catalogue_model("mixtral-8x7b"), catalogue_model("deepseek-v3")
    plan = layouts(ParallelPlan(dp_shard=8, tp=4, ep=2), ParallelPlan(dp_shard=8, tp=4, ep=16))
    assert expert_tp(wide, plan).tolist() == [4, 2]
    assert expert_tp(narrow, plan).tolist() == [1, 1]


def test_both_directions_hold_two_stages_and_the_papers_micro_batches():
    """arXiv 2412.19437, table 2: parameters twice, PP + 1 micro batches; a shared optimizer's state as before.

    Of 62 blocks on 16 stages the ends have three each, with embedding and head, and all others four.
    """
    model, work = catalogue_model("deepseek-v3"), replace(WORK, batch_tokens=1024 * 64 * 16)
    plans = [ParallelPlan(pp=16, dp_shard=16, ep=16, zero_stage=1, schedule=each) for each in ("1f1b", "dualpipe")]
    one, both = (case_of(model, work, layouts(plan, work=work), PLAIN) for plan in plans)
    assert both.stages.layers[:, 0].tolist() == [3 + 3, 4 + 4]
    assert both.stages.dense_layers[:, 0].tolist() == [3, 0]
    assert (both.stages.passes * both.stages.layers)[1, 0] == 17 * 4
    assert both.stages.has_head[:, 0].tolist() == [1, 0] and both.stages.has_embedding[:, 0].tolist() == [1, 0]
    mixture = (one.stages.total[1, 0] - one.stages.tables[1, 0]) / 4
    assert both.stages.total[1, 0] == pytest.approx(8 * mixture)
    assert both.stages.tables[0, 0] == one.stages.tables.sum()
    gradients, optimizer = kept(both).gradients, kept(both).optimizer
    assert gradients[1, 0] == pytest.approx(2 * 8 * mixture)  # of 16-bit states
    tables = state_bytes(one).optimizer * one.stages.tables[1, 0] / 16
    assert optimizer[1, 0] == pytest.approx(kept(one).optimizer[1, 0] - tables)


def test_two_ranks_both_have_both_ends():
    model = catalogue_model("llama3-8b")
    plans = [ParallelPlan(pp=2, dp_shard=16, zero_stage=1, schedule=each) for each in ("1f1b", "dualpipe")]
    one, both = (stages_of(model, layouts(plan)) for plan in plans)
    assert both.total.tolist() == [pytest.approx([one.total.sum()])] * 2
    assert both.has_head.tolist() == both.has_embedding.tolist() == [[1.0]] * 2


def test_adapters_leave_the_rest_frozen():
    adapter = Adapter(rank=16, targets=("query", "key", "value", "output"), frozen="nf4")
    model = catalogue_model("mistral-7b")
    states = kept_bytes(model, replace(WORK, adapter=adapter, precision="bf16"), ParallelPlan())
    trained = 13_631_488  # printed by peft for r = 16 on q, k, v, o of Mistral-7B
    assert states.gradients[0, 0] == pytest.approx(4 * trained)
    frozen = states.weights[0, 0] - 4 * trained
    tables = 2 * model.vocabulary * model.width
    assert frozen == pytest.approx((total_parameters(model) - tables) * 0.5625 + 2 * tables)


def test_adapters_keep_the_moments_of_their_optimizer():
    """AdamW keeps two of each parameter, SGD with momentum one, Adafactor rows and columns alone."""
    adapter = Adapter(rank=16, targets=("query", "key", "value", "output"))
    model, trained = catalogue_model("mistral-7b"), 13_631_488
    # A row and a column of each of an adapter's two sides; keys and values are 1,024 wide, all else 4,096.
    factored = 32 * (6 * (16 + 4096) + 2 * (16 + 1024))
    for optimizer, count in (("adamw", 2), ("sgd", 1), ("plain-sgd", 0), ("adafactor", factored / trained)):
        states = kept_bytes(model, replace(WORK, adapter=adapter, optimizer=optimizer), ParallelPlan())
        assert states.optimizer[0, 0] == pytest.approx(4 * count * trained)


def test_every_stack_in_the_catalogue_has_states():
    for name in ("megatron-bridge", "hf-trainer", "torchtitan", "trainwright"):
        states = kept_bytes(LLAMA, WORK, ParallelPlan(), memory=read_stack(name).memory)
        assert (states.weights > 0).all()


def test_torchtune_keeps_8b_in_nf4_with_adapters_in_16_bits():
    """Scales of 8 bits for 64 weights and of 32 for 256 of those; embedding and head in bf16; rank 8 on q and v."""
    model = catalogue_model("llama3-8b")
    work = replace(WORK, precision="bf16", states="pure", adapter=Adapter(rank=8, frozen="nf4"))
    states = kept_bytes(model, work, ParallelPlan(), memory=read_stack("torchtune").memory)
    tables, adapters = 2 * 128_256 * 4096, 32 * 8 * (4096 + 4096 + 4096 + 1024)
    blocks = 8_030_261_248 - tables
    expected = blocks * (0.5 + 1 / 64 + 4 / (64 * 256)) + 2 * tables + 2 * adapters
    assert states.weights[0, 0] == pytest.approx(expected, rel=1e-6)
    assert states.gradients[0, 0] == 2 * adapters and states.optimizer[0, 0] == 4 * adapters


@pytest.mark.parametrize(
    ("stack", "frozen", "expert_bytes"),
    [
        ("trl-peft", "nf4", 2.0),  # transformers 5: one parameter of a layer's experts, which bitsandbytes leaves
        ("hf-deepspeed", "int8", 2.0),
        ("unsloth", "nf4", 0.5 + (1 + 4 / 256) / 64),
        ("hf-trainer", "bf16", 2.0),
    ],
)
def test_experts_beside_quantised_weights_have_16_bits_but_where_software_quantises_them(stack, frozen, expert_bytes):
    """Qwen3 30B A3B (config.json): 48 layers of 128 experts, each three matrices of 768 x 2048."""
    model, memory = catalogue_model("qwen3-30b-a3b"), read_stack(stack).memory
    work = replace(WORK, precision="bf16", adapter=Adapter(rank=8, frozen=frozen))
    weights = kept_bytes(model, work, ParallelPlan(), memory=memory).weights[0, 0]
    experts, tables, total = 48 * 128 * 3 * 768 * 2048, 2 * 151_936 * 2048, 30_532_122_624
    rest = {"nf4": 0.5 + ((1 + 4 / 256) if memory.double_quantised else 4) / 64, "int8": 1.0, "bf16": 2.0}[frozen]
    adapters = 48 * 8 * (2048 + 4096 + 2048 + 512) * memory.adapter_bytes
    expected = experts * expert_bytes + (total - experts - tables) * rest + 2 * tables + adapters
    assert weights == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("asked", [{"moments": "int8"}, {"paged_moments": True, "moments": "fp32"}])
def test_8_bit_and_paged_optimizers_copy_one_tensor_at_most(asked):
    """bitsandbytes updates tensor by tensor in place; torch's AdamW copies all parameters at once (``foreach``)."""
    foreach = StackMemory(update_copies=1.0)
    work = replace(WORK, precision="bf16", states="pure")
    whole = kept_bytes(LLAMA, work, ParallelPlan(), memory=foreach).update[0, 0]
    one = kept_bytes(LLAMA, replace(work, **asked), ParallelPlan(), memory=foreach).update[0, 0]
    assert whole == 2 * total_parameters(LLAMA)
    assert one == 2 * LLAMA.ffn_width * LLAMA.width  # larger than its table
    adapter = replace(work, adapter=Adapter(rank=16, targets=("query", "value")))
    whole = kept_bytes(LLAMA, adapter, ParallelPlan(), memory=foreach).update[0, 0]
    one = kept_bytes(LLAMA, replace(adapter, **asked), ParallelPlan(), memory=foreach).update[0, 0]
    assert whole > one == pytest.approx(4 * 16 * LLAMA.width)


def test_with_updates_in_the_backward_pass_one_tensors_gradient_is_there():
    """Llama 3 8B in bf16: of 16 GB of gradients the embedding's or the head's 128,256 x 4,096 x 2 bytes."""
    model, plan = catalogue_model("llama3-8b"), ParallelPlan()
    work = replace(WORK, batch_tokens=1024, precision="bf16", states="pure", update_in_backward=True)
    states = kept_bytes(model, work, plan)
    assert states.gradients[0, 0] == pytest.approx(128_256 * 4096 * 2)
    assert states.weights[0, 0] == pytest.approx(2 * 8_030_261_248)
    added_up = kept_bytes(model, replace(work, batch_tokens=2048), plan)
    buffer = kept_bytes(model, work, plan, memory=replace(PLAIN, flat_gradients=True))
    assert added_up.gradients[0, 0] == buffer.gradients[0, 0] == pytest.approx(2 * 8_030_261_248)


@pytest.mark.parametrize(("moments", "each", "paged"), [("fp32", 8.0, 8.0), ("int8", 2 * (1 + 4 / 256), 2.0)])
def test_paged_moments_are_those_of_large_tensors_without_their_scales(moments, each, paged):
    """Of Llama 3 8B only norms have fewer than 100,000 elements; two moments of a tensor are paged."""
    model, plan = catalogue_model("llama3-8b"), ParallelPlan()
    work = replace(WORK, precision="bf16", states="pure", moments=moments)
    whole, pages = (kept_bytes(model, replace(work, paged_moments=on), plan) for on in (False, True))
    assert whole.optimizer[0, 0] == pytest.approx(each * 8_030_261_248)
    assert pages.optimizer[0, 0] == pytest.approx((each - paged) * 8_030_261_248, rel=1e-4, abs=3e5 * each)
    assert (pages.weights == whole.weights).all()


def test_moments_of_small_adapters_are_not_paged():
    """Rank 8 beside 4,096 inputs is 32,768 elements, rank 64 is 262,144; 8-bit moments are two bytes and a scale."""
    model, plan = catalogue_model("llama3-8b"), ParallelPlan()
    for rank, left in ((8, 1.0), (64, 0.2)):
        work = replace(WORK, precision="bf16", adapter=Adapter(rank=rank), paged_moments=True)
        whole = kept_bytes(model, replace(work, paged_moments=False), plan).optimizer[0, 0]
        # On q and v three of four sides are 4,096 wide; v's other has 1,024, of which rank 64 makes 65,536 elements.
        assert kept_bytes(model, work, plan).optimizer[0, 0] == pytest.approx(
            whole * (1.0 if left == 1 else 1024 / (3 * 4096 + 1024))
        )
    eight = replace(WORK, precision="bf16", adapter=Adapter(rank=8), moments="int8")
    elements = 32 * 8 * (4096 + 4096 + 4096 + 1024)
    assert kept_bytes(model, eight, plan).optimizer[0, 0] == pytest.approx(2 * (1 + 4 / 256) * elements)


def test_frozen_weights_leave_alone():
    model = catalogue_model("llama3-8b")
    work = replace(WORK, precision="bf16", adapter=Adapter(rank=8))
    here, gone = (kept_bytes(model, work, ParallelPlan(offload=each)) for each in ("none", "frozen"))
    adapters = 4 * 32 * 8 * (4096 + 4096 + 4096 + 1024)
    assert gone.weights[0, 0] == adapters and here.weights[0, 0] > 16e9
    assert (gone.optimizer == here.optimizer).all() and (gone.gradients == here.gradients).all()


def test_an_average_is_four_bytes_that_offload_leaves_on_the_device():
    fp32 = replace(WORK, precision="bf16", states="fp32")
    plans = [ParallelPlan(), ParallelPlan(offload="optimizer"), ParallelPlan(dp_shard=4)]
    with_it, without = (kept_bytes(LLAMA, replace(fp32, average_every=every), *plans) for every in (1, 0))
    each = (with_it.optimizer - without.optimizer)[0] / total_parameters(LLAMA)
    assert each == pytest.approx([4, 4, 1])
    assert without.optimizer[0, 1] == 0
    assert (with_it.weights == without.weights).all()


def test_this_trainer_has_gathered_frozen_weights_beside_its_shards_below_zero_3():
    """``fully_shard(reshard_after_forward=False)`` copies the parameters of one rank too, frozen or not.

    So it was measured with torch 2.13.0 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py). Weights in nf4 are
    buffers, which it leaves alone.
    """
    model = catalogue_model("llama3-8b")
    weights, tables = 2 * total_parameters(model), 2 * 2 * model.vocabulary * model.width

    def needed(frozen, **layout):
        work = replace(WORK, adapter=Adapter(rank=8, frozen=frozen))
        run = RunSpec(model=model, workload=work, cluster=cluster("8xh100-sxm"), stack=read_stack("trainwright"))
        found = forecast(run, layouts(ParallelPlan(**layout), work=work), CATALOGUE)
        return float(found.memory.needed_bytes[0])

    whole = {"dp_replicate": 8}, {"dp_shard": 8, "zero_stage": 3}, {"dp_shard": 8, "zero_stage": 2}
    replicas, sharded, once = (needed("bf16", **each) for each in whole)
    assert 2 * weights < replicas < 3 * weights
    two_layers = (weights - tables) / model.layers * 2
    assert once - sharded == pytest.approx(weights - tables - two_layers, rel=0.1)
    packed = [needed("nf4", dp_replicate=each) for each in (1, 8)]
    assert packed[1] - packed[0] == pytest.approx(tables, rel=0.15)
