from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.models import model as catalogue_model
from trainwright.hardware.nodes import cluster as catalogue_cluster
from trainwright.hardware.stacks import read_stack
from trainwright.planner.parameters import total_parameters
from trainwright.planner.predict.forecast import forecast
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.predict.offload import HOST_UPDATE_S, offload_s
from trainwright.spec.workload import ParallelPlan, Workload

MODEL, STACK = catalogue_model("llama3-8b"), read_stack("default")
WORK = Workload(
    sequence_tokens=4096, batch_tokens=1 << 18, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)


def layouts(*offloads, **degrees):
    return Layouts.of([ParallelPlan(offload=each, **degrees) for each in offloads], ["full"] * len(offloads), WORK)


def added(cluster, found, step_s):
    return offload_s(MODEL, WORK, found, cluster, STACK, step_s=np.full(len(found), step_s))


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


def test_fetching_weights_hides_behind_work_that_is_long_enough():
    cluster = catalogue_cluster("a100-sxm-80gb")
    found = layouts("optimizer", "all")
    hidden, seen = added(cluster, found, 1e4), added(cluster, found, 1.0)
    assert hidden[0] == hidden[1]
    fetches = 2 * found.micro_batches[1] * 2 * total_parameters(MODEL) / cluster.node.bus.bytes_per_s
    assert seen[1] - seen[0] == pytest.approx(fetches - 1.0)


def test_a_device_whose_memory_is_the_hosts_has_nowhere_to_offload_to():
    cluster = catalogue_cluster("m3-max")
    assert cluster.node.bus is None
    assert np.isinf(added(cluster, layouts("optimizer"), 1.0)[0])


def test_a_forecast_counts_it_as_part_of_the_update():
    cluster = catalogue_cluster("a100-sxm-80gb")
    none, offloaded = layouts("none"), layouts("optimizer")
    both = [forecast(MODEL, WORK, each, cluster, STACK) for each in (none, offloaded)]
    extra = added(cluster, offloaded, both[0].step_s[0])[0]
    assert both[1].step.update[0] - both[0].step.update[0] == pytest.approx(extra)
    assert both[1].memory.needed_bytes[0] < both[0].memory.needed_bytes[0]
    assert replace(both[0].step, update=both[1].step.update).total_s == pytest.approx(both[1].step_s)
