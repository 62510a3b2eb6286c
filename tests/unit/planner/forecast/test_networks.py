"""Both kinds of networks answer a forecast's questions, and every other place asks them alike."""

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.networks import CONVOLUTIONAL_NETWORKS, TRANSFORMERS, counted
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload


def run_of(name, sequence):
    work = Workload(sequence_tokens=sequence, batch_tokens=64 * sequence, steps=1, precision="bf16", optimizer="adamw")
    return RunSpec(model=model(name), workload=work, cluster=cluster("8xa100-sxm-80gb"), stack=stack("default"))


@pytest.mark.parametrize(
    ("name", "sequence", "kind"), [("resnet-50", 1, CONVOLUTIONAL_NETWORKS), ("llama3-8b", 512, TRANSFORMERS)]
)
def test_a_network_is_counted_by_its_kind(name, sequence, kind):
    run = run_of(name, sequence)
    network = counted(run.model)
    assert network is kind
    plans = [ParallelPlan(dp_shard=8), ParallelPlan(dp_replicate=8, zero_stage=0)]
    layouts = Layouts.of(plans, ["none"] * 2, run.workload)
    sent, memory = network.exchange(run, layouts), network.memory(run, layouts, None)
    # Sharded weights are gathered in every pass, replicas exchange gradients alone.
    assert sent.gather_s[0] > 0 == sent.gather_s[1] and sent.gradients_s[1] > 0
    assert memory.optimizer[0] == pytest.approx(memory.optimizer[1] / 8)
    assert np.all(network.states_bytes(run, layouts) <= memory.needed_bytes)
    assert network.offload_s(run, layouts, np.ones(2), np.ones(2)).tolist() == [0, 0]
    assert network.library_bytes(run) >= 0
