"""The table as a whole: its sums, kinds and verdicts, and published facts that were not fitted."""

from dataclasses import fields, replace

import numpy as np
import pytest

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack, stack_names
from trainwright.planner.counts.adapters import adaptable
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.memory.table import NEEDED_CONTEXT_BYTES, library_bytes, predict_memory, usable_bytes
from trainwright.spec.measures import MemoryUse
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

GIB = 1 << 30
WORK = Workload(sequence_tokens=4096, batch_tokens=4096 * 64, steps=1, precision="bf16", optimizer="adamw")
ONE = cluster("a100-sxm-80gb")


def table(model, plans, stack="torchtitan", work=WORK, recompute="none", on=ONE, **more):
    layouts = Layouts.of(plans, [recompute] * len(plans), work)
    return predict_memory(RunSpec(model=model, workload=work, cluster=on, stack=read_stack(stack)), layouts, **more)


def test_many_layouts_are_each_predicted_as_if_alone():
    model = catalogue_model("mixtral-8x7b")
    plans = [
        ParallelPlan(dp_shard=8),
        ParallelPlan(dp_shard=2, tp=4, micro_batch_sequences=2),
        ParallelPlan(dp_shard=2, pp=4, zero_stage=1, schedule="interleaved", virtual_stages=2),
        ParallelPlan(dp_shard=4, ep=4, cp=2, compile=True),
        ParallelPlan(dp_shard=8, offload="all"),
    ]
    for stack in ("torchtitan", "trainwright", "megatron-2021"):
        together = table(model, plans, stack)
        for place, plan in enumerate(plans):
            alone = table(model, [plan], stack)
            for field in fields(alone):
                assert getattr(alone, field.name)[0] == pytest.approx(getattr(together, field.name)[place]), field.name


def test_classes_sum_to_what_torch_and_the_driver_report():
    memory = table(LLAMA, [ParallelPlan(dp_shard=8)])
    use = memory.use(0)
    assert set(use.as_dict()) == set(MemoryUse.names())
    assert use.total_bytes == pytest.approx(memory.device_bytes[0])
    assert memory.allocated_bytes < memory.reserved_bytes < memory.device_bytes
    for kind in ("allocated", "reserved", "device"):
        low, high = memory.interval(kind)
        assert low < memory.reported(kind) < high


@pytest.mark.parametrize(
    ("more", "field"),
    [({"tp": 2}, "weights"), ({"dp_shard": 16}, "optimizer"), ({"cp": 2}, "activations"), ({"pp": 2}, "weights")],
)
def test_more_ranks_hold_less_each(more, field):
    plans = [ParallelPlan(dp_shard=8), ParallelPlan(**{"dp_shard": 8, **more})]
    few, many = getattr(table(catalogue_model("llama3-8b"), plans), field)
    assert many < few


def test_more_recomputation_keeps_less_and_longer_sequences_more():
    model = catalogue_model("llama3-8b")
    peaks = [table(model, [ParallelPlan(dp_shard=8)], recompute=each).device_bytes[0] for each in ("full", "none")]
    assert peaks[0] < peaks[1]
    longer = replace(WORK, sequence_tokens=8192)
    assert table(model, [ParallelPlan(dp_shard=8)], work=longer).device_bytes[0] > peaks[1]


def test_the_stage_asked_for_is_no_worse_than_the_worst():
    model = catalogue_model("llama3-8b")
    plan = [ParallelPlan(pp=4, zero_stage=1)]
    first, last, worst = (table(model, plan, "megatron-2021", stage=each) for each in ("first", "last", "worst"))
    peaks = first.allocated_bytes[0], last.allocated_bytes[0]
    assert worst.allocated_bytes[0] == max(peaks)
    assert worst.last_stage[0] == (peaks[1] > peaks[0])
    assert peaks[0] != peaks[1]


def test_verdicts_grow_uncertain_towards_the_edge():
    model = catalogue_model("llama3-8b")
    memory = table(model, [ParallelPlan(dp_shard=8)])
    needed = memory.needed_bytes[0]
    for factor, fits, uncertain in ((2.0, True, False), (1.01, True, True), (0.99, False, True), (0.5, False, False)):
        usable = needed * factor
        board = replace(ONE.device, memory_bytes=int(usable / usable_bytes(ONE.device) * ONE.device.memory_bytes))
        assert (bool(memory.fits(board)[0]), bool(memory.uncertain(board)[0])) == (fits, uncertain), factor


def test_fragments_of_an_allocator_are_needed_too_and_idle_blocks_are_not():
    model, plan = catalogue_model("llama3-8b"), [ParallelPlan(dp_shard=8)]
    titan = read_stack("torchtitan")

    def needed(**habits):
        stack = replace(titan, memory=replace(titan.memory, **habits))
        layouts = Layouts.of(plan, ["none"], WORK)
        return predict_memory(RunSpec(model=model, workload=WORK, cluster=ONE, stack=stack), layouts).needed_bytes[0]

    tidy, least, untidy = needed(fragmentation=0.0), needed(fragmentation=0.06), needed(fragmentation=0.2)
    assert tidy == least < untidy
    assert needed(idle=0.0) == needed(idle=1.0)


def test_boards_have_about_what_torch_sees_of_them():
    """``torch.cuda.mem_get_info`` of these boards, in GiB."""
    for name, gib in (("a100-sxm-80gb", 79.15), ("a100-sxm-40gb", 39.39), ("v100-sxm-32gb", 31.74), ("h100-sxm", 79.1)):
        assert usable_bytes(device(name)) / GIB == pytest.approx(gib, rel=0.02)


def test_offloaded_bytes_are_the_nodes():
    eight = cluster("8xa100-sxm-80gb")
    plans = [ParallelPlan(dp_shard=8, offload=where) for where in ("none", "optimizer")]
    memory = table(catalogue_model("llama3-8b"), plans, on=eight)
    assert memory.host_bytes[0] == 0
    assert memory.host_bytes[1] == pytest.approx(8 * memory.optimizer[0])


def test_blocks_of_other_lengths_stay_reserved_and_are_given_back_when_needed():
    """LoRA of Qwen-7B at most 2,048 tokens long reserves 27.74 GiB (ms-swift's benchmark), 19.4 GiB of them allocated
    and kept as with equal lengths; the shorter most examples are, the smaller are the blocks kept for them."""
    same = replace(WORK, sequence_tokens=2048, batch_tokens=2048, adapter=Adapter(rank=8))
    other = replace(same, example_tokens=1024)
    equal, varied = (table(LLAMA, [ParallelPlan()], work=work) for work in (same, other))
    assert varied.allocated_bytes == pytest.approx(equal.allocated_bytes)
    assert varied.reserved_bytes[0] - equal.reserved_bytes[0] == pytest.approx(3.1 * equal.logits[0] / 2)
    assert varied.needed_bytes == pytest.approx(equal.needed_bytes) and varied.spread[0] > equal.spread[0]


def test_an_allocator_keeps_no_more_than_has_room():
    """LoRA of Qwen-7B with eight sequences reserves 76.14 GiB of an A100's 80 (ms-swift's benchmark)."""
    work = replace(WORK, sequence_tokens=2048, batch_tokens=8 * 2048, adapter=Adapter(rank=8), example_tokens=1346)
    memory = table(LLAMA, [ParallelPlan(micro_batch_sequences=8)], work=work)
    room = usable_bytes(ONE.device) - NEEDED_CONTEXT_BYTES
    large = replace(memory, reserved_unused=np.array([1e12]))
    assert large.reported("reserved", ONE.device)[0] == pytest.approx(room)
    assert large.reported("device", ONE.device)[0] == pytest.approx(room + memory.context[0])
    assert large.reported("allocated", ONE.device) == memory.allocated_bytes
    assert large.reported("reserved")[0] > 1e12
    small = replace(memory, reserved_unused=np.array([1.0]))
    assert small.reported("device", ONE.device) == small.device_bytes
    low, high = large.interval("reserved", ONE.device)
    assert low[0] < room < high[0] < 1e12


def test_workspaces_follow_the_architecture():
    a100, h100 = device("a100-sxm-80gb"), device("h100-sxm")
    assert (library_bytes(LLAMA, a100), library_bytes(LLAMA, h100)) == (8 << 20, 32 << 20)
    assert library_bytes(catalogue_model("mixtral-8x7b"), h100) == 5 * (32 << 20)
    assert library_bytes(LLAMA, device("tpu-v5p")) == 0


def test_a_405b_model_fits_where_it_was_trained():
    """Llama 3 (arXiv 2407.21783, table 4): TP 8, PP 16, DP 64 on H100 80 GB at 8K tokens, no recomputation."""
    model = catalogue_model("llama3.1-405b")
    work = replace(WORK, sequence_tokens=8192, batch_tokens=8192 * 2048, states="mixed")
    plan = ParallelPlan(tp=8, pp=16, dp_shard=64, zero_stage=2)
    memory = table(model, [plan], "megatron-core", work, on=cluster("1024x8xh100-sxm"))
    assert 50 < memory.needed_bytes[0] / GIB < 90
    alone = table(model, [ParallelPlan(tp=8, dp_shard=64, zero_stage=2)], "megatron-core", work)
    assert not alone.fits(ONE.device)[0]
    assert not alone.uncertain(ONE.device)[0]


def test_thousands_of_layouts_share_one_formula():
    plans = [ParallelPlan(dp_shard=n, micro_batch_sequences=1 + n % 3) for n in range(1, 1001)]
    memory = table(catalogue_model("llama3-8b"), plans)
    assert memory.device_bytes.shape == (1000,)
    assert np.isfinite(memory.device_bytes).all()


def test_every_model_of_the_catalogue_is_predicted_by_every_stack():
    plans = [
        ParallelPlan(),
        ParallelPlan(dp_shard=8),
        ParallelPlan(pp=2, tp=2, dp_shard=2),
        ParallelPlan(dp_shard=8, ep=8),
    ]
    for name in ("bert-large", "vit-l-16", "deepseek-v3", "gpt-oss-120b", "gemma2-9b", "phi-2", "opt-125m"):
        model = catalogue_model(name)
        for stack in stack_names():
            for adapter in (None, Adapter(rank=8, frozen="nf4", targets=adaptable(model))):
                work = replace(WORK, sequence_tokens=512, states=read_stack(stack).states, adapter=adapter)
                layouts = Layouts.of(plans, ["none", "full", "selective", "none"], work)
                memory = predict_memory(
                    RunSpec(model=model, workload=work, cluster=ONE, stack=read_stack(stack)), layouts
                )
                for part in MemoryUse.names():
                    assert (getattr(memory, part) >= 0).all(), (name, stack, part)
                assert np.isfinite(memory.device_bytes).all()
