"""What waits in host memory needs a link to it: counted where there is one, refused on a processor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import LARGE, on_a_gpu, plan_of, planned_recipe
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.plan.machine import this_machine
from trainwright.stages.plan.host_memory import with_bus
from trainwright.testing.machine import fake_machine


def test_activations_leave_the_device_and_cross_its_bus(tmp_path):
    plain, moved = on_a_gpu(tmp_path), on_a_gpu(tmp_path, "train.activation_offload=true")
    assert moved.estimate.memory.activations < plain.estimate.memory.activations / 10
    assert moved.estimate.memory.weights == plain.estimate.memory.weights
    assert moved.estimate.seconds.mid > plain.estimate.seconds.mid
    (bus,) = (note for note in moved.estimate.assumptions if note.key == "bus")
    assert bus.value == "pcie5", "what servers of this device have"
    assert not any(note.key == "bus" for note in plain.estimate.assumptions)


def test_a_processor_is_refused_with_what_helps(tmp_path):
    with pytest.raises(RecipeError, match=r"train\.activation_offload.*train\.recompute=full keeps less"):
        plan_of(planned_recipe(tmp_path, "train.activation_offload=true"))


def test_a_device_that_shares_the_hosts_memory_is_refused_too(tmp_path):
    recipe = planned_recipe(tmp_path, *LARGE)
    sending = recipe.train.model_copy(update={"activation_offload": True})
    with pytest.raises(RecipeError, match=r"no memory beside the host's .*seen true on m3-max"):
        with_bus(replace(this_machine(fake_machine()), cluster=cluster("m3-max")), sending)


def test_what_selective_recomputation_keeps_is_not_moved(tmp_path):
    with pytest.raises(RecipeError, match="recompute=selective keeps"):
        planned_recipe(tmp_path, "train.activation_offload=true", "train.recompute=selective")


def test_the_optimizer_leaves_the_device_and_its_update_crosses_the_bus(tmp_path):
    plain = on_a_gpu(tmp_path, "train.exec.layout={dp_shard: 1}")
    moved = on_a_gpu(tmp_path, "train.exec.layout={offload: optimizer}")
    parameters = sum(plain.parameters.values())
    assert moved.parallel.offload == "optimizer"
    assert plain.estimate.memory.optimizer == pytest.approx(8 * parameters)
    assert moved.estimate.memory.optimizer == 0
    assert moved.estimate.memory.weights == plain.estimate.memory.weights
    added = moved.estimate.phases.update - plain.estimate.phases.update
    assert added > 12 * parameters / 64e9, "gradients and weights out, weights back, over 64 GB/s"


def test_a_host_cannot_update_on_itself(tmp_path):
    layout = "train.exec.layout={offload: optimizer}"
    with pytest.raises(RecipeError, match=r"this device has no memory .*set train\.exec\.layout\.offload=none"):
        plan_of(planned_recipe(tmp_path, layout))
