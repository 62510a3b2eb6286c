from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.memory.offload import HOST_UPDATE_S, SLOWED, offload_s, offloaded
from trainwright.planner.forecast.memory.states import case_of, kept
from trainwright.planner.forecast.memory.table import predict_memory
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

MODEL, STACK = catalogue_model("llama3-8b"), read_stack("default")
WORK = Workload(
    sequence_tokens=4096, batch_tokens=1 << 18, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)


def layouts(*offloads, **degrees):
    return Layouts.of([ParallelPlan(offload=each, **degrees) for each in offloads], ["full"] * len(offloads), WORK)


def added(cluster, rows, step_s):
    return offload_s(
        RunSpec(model=MODEL, workload=WORK, cluster=cluster, stack=STACK), rows, *(np.full(len(rows), step_s / 2),) * 2
    )


def test_an_offloaded_optimizer_sends_gradients_and_gets_weights_back():
    cluster = catalogue_cluster("a100-sxm-80gb")
    parameters = total_parameters(MODEL)
    # 2 bytes each way over the bus, and one update on the host.
    expected = 4 * parameters / cluster.node.bus.bytes_per_s + HOST_UPDATE_S * parameters
    assert added(cluster, layouts("none", "optimizer"), 1.0) == pytest.approx([0.0, expected])


def test_ranks_that_share_the_state_share_the_bus_but_not_the_host():
    one, eight = catalogue_cluster("a100-sxm-80gb"), catalogue_cluster("8xa100-sxm-80gb")
    parameters, rate = total_parameters(MODEL), one.node.bus.bytes_per_s
    alone = added(one, layouts("optimizer"), 1.0)[0]
    shared = added(eight, layouts("optimizer", dp_shard=8), 1.0)[0]
    assert alone - shared == pytest.approx(4 * parameters / rate * 7 / 8)


def test_a_host_of_two_cores_updates_as_fast_as_they_can():
    whole = catalogue_cluster("a100-sxm-80gb")
    few = replace(whole, node=replace(whole.node, cpu_cores=2))
    more = added(few, layouts("optimizer"), 1.0) - added(whole, layouts("optimizer"), 1.0)
    assert more == pytest.approx((0.45e-9 - HOST_UPDATE_S) * total_parameters(MODEL))


def test_fetching_weights_hides_behind_work_that_is_long_enough():
    cluster = catalogue_cluster("a100-sxm-80gb")
    rows = layouts("optimizer", "all")
    hidden, seen = added(cluster, rows, 1e4), added(cluster, rows, 1.0)
    fetches = 2 * rows.micro_batches[1] * 2 * total_parameters(MODEL) / cluster.node.bus.bytes_per_s
    # What nobody waits for still slows the kernels beside it.
    assert hidden[1] - hidden[0] == pytest.approx(SLOWED * fetches)
    assert seen[1] - seen[0] == pytest.approx(fetches - 1.0)


def test_a_device_whose_memory_is_the_hosts_has_nowhere_to_offload_to():
    cluster = catalogue_cluster("m3-max")
    assert cluster.node.bus is None
    assert np.isinf(added(cluster, layouts("optimizer"), 1.0)[0])


def test_a_forecast_counts_it_as_part_of_the_update():
    cluster = catalogue_cluster("a100-sxm-80gb")
    none, offloaded = layouts("none"), layouts("optimizer")
    both = [
        forecast(RunSpec(model=MODEL, workload=WORK, cluster=cluster, stack=STACK), each, CATALOGUE)
        for each in (none, offloaded)
    ]
    extra = added(cluster, offloaded, both[0].step_s[0])[0]
    assert both[1].step.update[0] - both[0].step.update[0] == pytest.approx(extra)
    assert both[1].memory.needed_bytes[0] < both[0].memory.needed_bytes[0]
    assert replace(both[0].step, update=both[1].step.update).total_s == pytest.approx(both[1].step_s)


INFINITY = replace(WORK, precision="fp16")
"""fp16 with fp32 master weights and gradients: 20 bytes a parameter (Rajbhandari et al., 2021, section 3)."""


def plain(layers, width):
    """Blocks of 12 width^2 parameters, as the paper counts them: next to no vocabulary."""
    return replace(
        catalogue_model("gpt3-175b"),
        layers=layers,
        width=width,
        heads=width // 128,
        kv_heads=width // 128,
        head_size=128,
        ffn_width=4 * width,
        vocabulary=2,
        context_tokens=1,
    )


def dgx_2(nodes):
    """16 V100 with 32 GB, 1.5 TB of memory, 28 TB of NVMe at 25.6 GB/s (the same, figure 2b, recall)."""
    cluster = catalogue_cluster(f"{nodes}x16xv100-sxm-32gb")
    node = replace(
        cluster.node,
        host_memory_bytes=1_500_000_000_000,
        nvme_bytes=28_000_000_000_000,
        nvme_read_bytes_per_s=25.6e9,
        nvme_write_bytes_per_s=25.6e9,
    )
    return replace(cluster, node=node)


@pytest.mark.parametrize(
    ("layers", "width", "tebibytes"),
    [(80, 10240, 1.83), (100, 20480, 9.16), (128, 25600, 18.31), (195, 65536, 182.81), (315, 163840, 1845.70)],
)
def test_model_states_are_those_of_zero_infinitys_table(layers, width, tebibytes):
    """Figure 2a (recall): model states of 0.1 to 100 trillion parameters."""
    plan = Layouts.of([ParallelPlan(dp_shard=16, offload="all-nvme")], ["full"], INFINITY)
    case = case_of(plain(layers, width), INFINITY, plan, read_stack("deepspeed").memory)
    assert 16 * offloaded(case).nvme[0, 0] / (1 << 40) == pytest.approx(tebibytes, rel=0.002)
    left = kept(case)
    assert left.weights[0, 0] == left.gradients[0, 0] == left.optimizer[0, 0] == 0


def test_a_trillion_parameters_are_tuned_on_one_dgx_2_and_32_trillion_on_32_with_nvme_alone():
    """The paper's abstract and section 8.2: one trillion on a single node, 32 trillion on 512 devices."""
    for nodes, layers, width in ((1, 128, 25600), (32, 1000, 51200)):
        cluster = dgx_2(nodes)
        plans = [ParallelPlan(dp_shard=16 * nodes, offload=each) for each in ("all", "all-nvme", "optimizer-nvme")]
        stack = read_stack("deepspeed")
        run = RunSpec(model=plain(layers, width), workload=INFINITY, cluster=cluster, stack=stack)
        memory = predict_memory(run, Layouts.of(plans, ["full"] * 3, INFINITY))
        assert memory.fits_host(cluster.node).tolist() == [False, True, True]
        assert 16e12 < memory.nvme_bytes[1] < 28e12
        assert memory.nvme_bytes[2] == pytest.approx(0.8 * memory.nvme_bytes[1], rel=0.001)
        without = replace(cluster.node, nvme_bytes=None)
        assert memory.fits_host(without).tolist() == [False, False, False]


def test_on_nvme_the_host_holds_buffers_alone_and_no_more_than_the_state():
    memory, small = read_stack("deepspeed").memory, plain(80, 10240)
    plans = Layouts.of([ParallelPlan(dp_shard=n, offload="all-nvme") for n in (16, 4096)], ["full"] * 2, INFINITY)
    host = offloaded(case_of(small, INFINITY, plans, memory)).host[0]
    assert host[0] == pytest.approx(4 * 4 * 1e9 + 5 * 1e8 * 2)
    assert host[1] == pytest.approx(18 * 12 * 80 * 10240**2 / 4096, rel=0.001)


def test_what_offload_takes_from_the_device_it_puts_elsewhere():
    memory = StackMemory(kernels="fused", update_copies=0.0)
    offloads = ("none", "optimizer", "all", "optimizer-nvme", "all-nvme")
    case = case_of(MODEL, INFINITY, layouts(*offloads), memory)
    states, gone = kept(case), offloaded(case)
    parameters = total_parameters(MODEL)
    assert (gone.host[0] / parameters)[:3].tolist() == pytest.approx([0, 12, 16])
    assert (gone.nvme[0] / parameters).tolist() == pytest.approx([0, 0, 0, 12, 16])
    on_device = (states.weights + states.gradients + states.optimizer)[0] / parameters
    assert on_device.tolist() == pytest.approx([16, 4, 0, 4, 0])


def test_a_state_on_nvme_is_read_and_written_once_a_step():
    """2 x 16 bytes a parameter (section 4.1), while the host updates; drives are shared by a node's ranks."""
    cluster, stack = dgx_2(1), read_stack("deepspeed")
    model = plain(80, 10240)
    for shard in (1, 16):
        rows = Layouts.of([ParallelPlan(dp_shard=shard, offload="optimizer-nvme")], ["full"], INFINITY)
        there = replace(cluster, node=replace(cluster.node, devices=shard))
        seconds = offload_s(
            RunSpec(model=model, workload=INFINITY, cluster=there, stack=stack), rows, *(np.ones(1),) * 2
        )[0]
        crossing = 2 * 2 * total_parameters(model) / shard / cluster.node.bus.bytes_per_s
        assert seconds - crossing == pytest.approx(2 * 16 * total_parameters(model) / 25.6e9, rel=1e-6)


def test_faster_drives_leave_the_hosts_update_and_none_leave_no_way():
    cluster = catalogue_cluster("a100-sxm-80gb")
    fast = replace(cluster.node, nvme_read_bytes_per_s=1e15, nvme_write_bytes_per_s=1e15)
    rows = layouts("optimizer", "optimizer-nvme", "all", "all-nvme")
    in_memory, on_drives, all_memory, all_drives = added(replace(cluster, node=fast), rows, 1.0)
    assert (on_drives, all_drives) == pytest.approx((in_memory, all_memory))
    slow = added(cluster, rows, 1.0)
    assert slow[1] > slow[0] and slow[3] > slow[2]
    bare = replace(cluster, node=replace(cluster.node, nvme_bytes=None, nvme_read_bytes_per_s=None))
    assert np.isinf(added(bare, rows, 1.0)).tolist() == [False, True, False, True]


def test_weights_on_nvme_are_read_for_both_passes_of_each_micro_batch_behind_its_work():
    cluster = catalogue_cluster("a100-sxm-80gb")
    rows = layouts("optimizer-nvme", "all-nvme")
    step_s = 100.0
    state, everything = added(cluster, rows, step_s)
    node, parameters = cluster.node, total_parameters(MODEL)
    each = 2 * 2 * parameters / node.nvme_read_bytes_per_s + 4 * parameters / node.nvme_write_bytes_per_s
    assert everything - state == pytest.approx(rows.micro_batches[1] * each - step_s)
    # Long passes hide the drives, not what the bus takes from their kernels.
    slowed = SLOWED * rows.micro_batches[1] * 2 * 2 * parameters / node.bus.bytes_per_s
    assert added(cluster, rows, 1e6)[1] - added(cluster, rows, 1e6)[0] == pytest.approx(slowed)


def test_frozen_weights_are_fetched_for_each_pass_and_nothing_else_crosses():
    """Llama 3 8B in bf16 over PCIe 4: 16.06 GB for both passes of each micro batch, behind the step's work."""
    cluster = catalogue_cluster("rtx-4090")
    work = replace(WORK, batch_tokens=4 * 4096, adapter=Adapter(rank=8))
    run = RunSpec(model=MODEL, workload=work, cluster=cluster, stack=STACK)
    rows = Layouts.of([ParallelPlan(offload="frozen")], ["full"], work)
    fetches = 4 * 2 * 2 * total_parameters(MODEL) / cluster.node.bus.bytes_per_s
    assert offload_s(run, rows, *[np.array([0.5])] * 2)[0] == pytest.approx(fetches - 1.0)
    assert offload_s(run, rows, *[np.array([1e3])] * 2)[0] == pytest.approx(SLOWED * fetches)
    # A long backward pass hides nothing of what the forward pass waits for.
    assert offload_s(run, rows, np.array([1.0]), np.array([1e3]))[0] == pytest.approx((1 + SLOWED) * fetches / 2 - 1.0)
    table = predict_memory(run, rows)
    assert table.host_bytes[0] == pytest.approx(2 * total_parameters(MODEL))


def test_short_forward_passes_wait_for_frozen_weights():
    """LoRA of 8B, one sequence of 2,048 at a time, on a 4090: 0.4 s of forward pass, 16 GB over PCIe 4 at 0.5 s."""
    work = replace(WORK, sequence_tokens=2048, batch_tokens=16 * 2048, adapter=Adapter(rank=16))
    run = RunSpec(model=MODEL, workload=work, cluster=catalogue_cluster("rtx-4090"), stack=STACK)
    rows = Layouts.of([ParallelPlan(offload=each) for each in ("none", "frozen")], ["full"] * 2, work)
    step = forecast(run, rows, CATALOGUE).step
    fetches = 16 * 2 * total_parameters(MODEL) / run.cluster.node.bus.bytes_per_s
    waits = fetches - step.forward[1]
    assert waits > 0
    assert step.total_s[1] - step.total_s[0] == pytest.approx(waits + SLOWED * fetches)
