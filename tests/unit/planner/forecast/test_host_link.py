from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import OFFLOADS, Layouts
from trainwright.planner.forecast.forecast import forecast, step_s
from trainwright.planner.forecast.host_link import UNMEASURED, activations_s, doubt, paged_s
from trainwright.planner.forecast.memory.offload import SLOWED
from trainwright.planner.forecast.memory.table import predict_memory, usable_bytes
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

MODEL, CARD = catalogue_model("llama3-8b"), catalogue_cluster("rtx-4090")
WORK = Workload(
    sequence_tokens=2048,
    batch_tokens=4096,
    steps=1,
    precision="bf16",
    optimizer="adamw",
    states="pure",
    moments="int8",
    fused_loss=True,
    update_in_backward=True,
    paged_moments=True,
)
"""As torchtune tunes all of Llama 3 8B on one device (8B_full_single_device.yaml)."""


def asked(work, cluster=CARD):
    return RunSpec(model=MODEL, workload=work, cluster=cluster, stack=read_stack("torchtune"))


def rows(work, *, recompute="full", micro_batch=2):
    return Layouts.of([ParallelPlan(micro_batch_sequences=micro_batch)], [recompute], work)


def test_paged_moments_fill_the_device_and_the_rest_crosses_twice_an_update():
    table = predict_memory(asked(WORK), rows(WORK))
    device = CARD.device
    # Two bytes a parameter of 8.03 billion: 16.06 GB, more than weights in bf16 leave of 24 GB.
    assert table.paged[0] == pytest.approx(2 * 8_030_261_248, rel=1e-3)
    room = usable_bytes(device) - table.device_bytes[0]
    assert 0 < room < table.paged[0]
    assert table.total_bytes(device)[0] == pytest.approx(usable_bytes(device))
    assert table.evicted_bytes(device)[0] == pytest.approx(table.paged[0] - room)
    assert table.node_bytes(CARD.node)[0] == pytest.approx(table.paged[0] - room)
    seconds = 2 * (table.paged[0] - room) / CARD.node.bus.bytes_per_s
    assert paged_s(CARD, table)[0] == pytest.approx(seconds)
    # A board with room for all pays nothing.
    large = catalogue_cluster("h100-sxm")
    assert paged_s(large, predict_memory(asked(WORK, large), rows(WORK)))[0] == 0


def test_a_run_fits_if_all_but_the_paged_moments_does_and_the_host_holds_them():
    one = forecast(asked(WORK), rows(WORK), CATALOGUE)
    assert one.fits[0]
    kept = replace(WORK, paged_moments=False)
    assert not forecast(asked(kept), rows(kept), CATALOGUE).fits[0]
    poor = replace(CARD, node=replace(CARD.node, host_memory_bytes=8 << 30))
    assert not forecast(asked(WORK, poor), rows(WORK), CATALOGUE).fits[0]
    # The search's shorter way comes to the same time.
    assert step_s(asked(WORK), rows(WORK), CATALOGUE)[0] == one.step_s[0]


def test_unified_memory_is_cudas():
    other = catalogue_cluster("mi300x")
    assert np.isinf(paged_s(other, predict_memory(asked(WORK, other), rows(WORK)))[0])


TUNED = replace(WORK, paged_moments=False, moments=None, update_in_backward=False, adapter=Adapter(rank=8))


def test_recomputed_layers_leave_their_inputs_alone():
    """With recomputation layers x tokens x width x 2 bytes are saved, all but five tensors leave."""
    work = replace(TUNED, activation_offload=True)
    here, gone = (predict_memory(asked(each), rows(each)) for each in (TUNED, work))
    one = 2 * 2048 * 4096 * 2
    assert gone.host_bytes[0] == (32 - 5) * one and here.host_bytes[0] == 0
    assert here.allocated_bytes[0] - gone.allocated_bytes[0] == pytest.approx((32 - 5) * one)


def test_copies_are_hidden_where_the_passes_are_longer():
    work = replace(TUNED, activation_offload=True, batch_tokens=8 * 2048)
    layouts = rows(work)
    step = forecast(asked(replace(work, activation_offload=False)), layouts, CATALOGUE).step
    bus = CARD.node.bus.bytes_per_s
    copying = 4 * (32 - 5) * 2 * 2048 * 4096 * 2 / bus
    # Recomputed layers leave 2 M d bytes a layer for 24 M d^2 operations or so: a PCIe link keeps pace.
    assert copying < step.forward[0]
    assert activations_s(asked(work), layouts, step)[0] == pytest.approx(2 * SLOWED * copying)
    whole = rows(work, recompute="none", micro_batch=1)
    fast = replace(step, forward=0 * step.forward, backward=0 * step.backward)
    gone = predict_memory(asked(work), whole).host_bytes[0]
    # Alone, eight micro batches go there and come back.
    assert activations_s(asked(work), whole, fast)[0] == pytest.approx(2 * 8 * gone / bus)
    assert np.isinf(activations_s(asked(work, catalogue_cluster("m3-max")), whole, step)[0])


def test_a_forecast_counts_the_copies_as_communication():
    work = replace(TUNED, activation_offload=True)
    with_, without = (forecast(asked(each), rows(each, recompute="none"), CATALOGUE) for each in (work, TUNED))
    extra = activations_s(asked(work), rows(work, recompute="none"), without.step)[0]
    assert extra > 0
    assert with_.step.communicate[0] - without.step.communicate[0] == pytest.approx(extra)
    assert with_.step_s[0] - without.step_s[0] == pytest.approx(extra)


def test_a_run_that_offloads_has_a_wider_range_since_none_was_measured():
    work = replace(TUNED, activation_offload=True)
    stays, moves = (forecast(asked(each), rows(each), CATALOGUE) for each in (TUNED, work))
    assert moves.spread == pytest.approx(np.hypot(stays.spread, UNMEASURED))
    assert doubt(asked(TUNED), rows(TUNED)) == 0.0
    frozen = replace(rows(TUNED), offload=np.full(1, float(OFFLOADS.index("frozen"))))
    assert doubt(asked(TUNED), frozen) == UNMEASURED == read_efficiency().doubt["generation"]
