"""On ideal rates a step is what its parts take by hand; on any rates more work is never faster."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.fixed_rates import IDEAL, combine, counted_work, silence
from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack, stack_names
from trainwright.planner.counts.layouts import RECOMPUTES, Layouts
from trainwright.planner.counts.work import Work
from trainwright.planner.forecast.time.pipeline import simulate
from trainwright.planner.forecast.time.step import StepTable
from trainwright.planner.rates.catalogue import rates
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 64, steps=1, precision="bf16", optimizer="adamw")
LLAMA = catalogue_model("llama3-8b")
SECONDS = [field.name for field in fields(Work) if field.name.endswith("_s")]


def shape(plan=None, recompute="none"):
    return Layouts.of([plan or ParallelPlan(dp_shard=64)], [recompute], WORK)


# ------------------------------------------------------------------------------------------------------------- by hand
@pytest.mark.parametrize(
    ("seconds", "forward", "backward"),
    [
        ({"products_s": 1.0}, 1, 2),  # two products for each of the forward pass
        ({"products_s": 1.0, "backward_products": 1.0}, 1, 1),  # frozen weights: one
        ({"head_s": 1.0}, 1, 2),
        ({"attention_s": 1.0}, 1, 2.5),  # five products for two (Dao, 2023, arXiv 2307.08691, section 3.1.2)
        ({"traffic_s": 1.0}, 1, 2),
        ({"loss_s": 1.0}, 0.5, 0.5),
        ({"casts_s": 1.0}, 0, 1),
    ],
)
def test_one_kind_of_work_takes_its_passes(seconds, forward, backward):
    step = combine(counted_work(**seconds), silence(), shape(), IDEAL)
    assert (step.forward[0], step.backward[0]) == pytest.approx((forward, backward))
    assert step.total_s[0] == pytest.approx(forward + backward)


def test_phases_partition_the_step():
    step = StepTable(**{field.name: np.array([10.0**place]) for place, field in enumerate(fields(StepTable))})
    assert step.total_s[0] == 111111.0


def test_products_of_the_update_run_at_the_products_rate():
    each = replace(counted_work(update_s=0.25), orthogonal_s=np.array([0.5]))
    step = combine(each, silence(), shape(), replace(IDEAL, update=2.0, head=0.8))
    assert step.update[0] == step.total_s[0] == pytest.approx(2 * 0.25 + 0.5 / 0.8)


def test_micro_batches_repeat_all_but_the_update_and_the_exchange_of_gradients():
    each = counted_work(products_s=1.0, update_s=0.25)
    sent = silence(tensor_s=0.125, gradients_s=0.5)
    for micro in (1, 2, 4):
        step = combine(each, sent, shape(ParallelPlan(dp_replicate=16, micro_batch_sequences=micro)), IDEAL)
        count = 4 / micro
        assert step.forward[0] == pytest.approx(count)
        assert step.communicate[0] == pytest.approx(count * 2 * 0.125 + 0.5)
        assert step.update[0] == pytest.approx(0.25)


def test_half_of_the_rate_takes_twice_the_time():
    full = combine(counted_work(products_s=1.0), silence(), shape(), IDEAL)
    half = combine(counted_work(products_s=1.0), silence(), shape(), replace(IDEAL, products=0.5))
    assert half.total_s == pytest.approx(2 * full.total_s)


def test_all_recomputed_is_one_forward_pass_more():
    """Without head and loss, which are not repeated; a third of products, as in Narayanan et al. (2021, appendix)."""
    each = counted_work(products_s=1.0, attention_s=0.5, traffic_s=0.25, head_s=0.5, loss_s=0.5)
    none, full = (combine(each, silence(), shape(recompute=name), IDEAL).total_s[0] for name in ("none", "full"))
    assert full - none == pytest.approx(1.0 + 0.5 + 0.25)


def test_a_bubble_is_what_narayanan_counts():
    """(p - 1) / (v m) of the useful time (arXiv 2104.04473, sections 2.2.1 and 2.2.2)."""
    for pp, virtual in ((1, 1), (4, 1), (8, 1), (4, 2), (8, 4)):
        plan = ParallelPlan(pp=pp, dp_replicate=4, virtual_stages=virtual, schedule="interleaved")
        step = combine(counted_work(products_s=1.0), silence(), shape(plan), IDEAL)
        useful = step.forward[0] + step.backward[0]
        assert step.idle[0] / useful == pytest.approx((pp - 1) / (virtual * 16))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
@pytest.mark.parametrize(("pp", "micro"), [(2, 16), (8, 16), (8, 32), (8, 4)])
def test_a_step_takes_what_its_schedule_takes_event_by_event(schedule, pp, micro):
    ones = np.ones(pp)
    played = simulate(schedule, forward_s=ones, backward_s=ones, weight_s=ones, micro_batches=micro)
    plan = ParallelPlan(pp=pp, dp_replicate=64 // micro, schedule=schedule)
    step = combine(counted_work(products_s=1.0), silence(), shape(plan), IDEAL).total_s[0]
    assert step == pytest.approx(played)


def test_a_host_that_is_slower_than_the_device_is_waited_for():
    rate = replace(IDEAL, launch_s=1e-3)
    step = combine(counted_work(products_s=0.001, kernels=1000.0), silence(), shape(), rate)
    assert step.total_s[0] == pytest.approx(3.0, rel=1e-6)
    assert step.host[0] == pytest.approx(3.0 - 0.003, rel=1e-3)
    quick = combine(counted_work(products_s=10.0, kernels=1000.0), silence(), shape(), rate)
    assert quick.host[0] < 0.01 * quick.total_s[0]


# -------------------------------------------------------------------------------------------------------- communication
def test_without_communication_nothing_is_exposed():
    rate = rates(
        RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("torchtitan")), read_efficiency()
    )
    assert combine(counted_work(products_s=1.0), silence(), shape(), rate).communicate[0] == 0


def test_sharded_weights_hide_behind_work_and_stand_out_without_it():
    sent = silence(gather_s=1.0, scatter_s=1.0, shards_overlapped=1.0)
    assert combine(counted_work(products_s=10.0), sent, shape(), IDEAL).communicate[0] < 0.01
    assert combine(counted_work(), sent, shape(), IDEAL).communicate[0] == pytest.approx(3.0)
    even = combine(counted_work(products_s=1.0), sent, shape(), IDEAL).communicate[0]
    assert 0 < even < 1


def test_kernels_beside_sharded_weights_are_slower_but_nobody_waits_twice():
    """A fifth of three seconds while kernels of thirty run; where sending is all there is to wait for, that alone."""
    sent, rate = silence(gather_s=1.0, scatter_s=1.0, shards_overlapped=1.0), replace(IDEAL, sharded=0.2)
    assert combine(counted_work(products_s=10.0), sent, shape(), rate).communicate[0] == pytest.approx(
        0.2 * 3, rel=0.01
    )
    assert combine(counted_work(products_s=0.01), sent, shape(), rate).communicate[0] == pytest.approx(
        3 - 0.03, rel=0.01
    )


def test_sharded_weights_are_waited_for_where_software_does_nothing_beside():
    sent, rate = silence(gather_s=1.0, scatter_s=1.0), replace(IDEAL, sharded=0.2, unhidden=2.0)
    assert combine(counted_work(products_s=10.0), sent, shape(), rate).communicate[0] == pytest.approx(2 * 3)


def test_gradients_hide_behind_half_of_a_backward_pass_where_software_lets_them():
    rate = replace(IDEAL, overlap=0.5)
    for products, seen in ((0.0, 1.0), (0.5, (1 + 0.5**4) ** 0.25 - 0.5), (10.0, 0.0)):
        sent = silence(gradients_s=1.0, overlapped=1.0)
        step = combine(counted_work(products_s=products), sent, shape(), rate)
        assert step.communicate[0] == pytest.approx(seen, abs=1e-3)
        after = combine(counted_work(products_s=products), silence(gradients_s=1.0), shape(), rate)
        assert after.communicate[0] == pytest.approx(1.0)


def test_tensor_parallelism_is_repeated_where_layers_are():
    sent = silence(tensor_s=1.0)
    none, full = (
        combine(counted_work(), sent, shape(recompute=name), IDEAL).communicate[0] for name in ("none", "full")
    )
    assert (none, full) == (2.0, 3.0)


# --------------------------------------------------------------------------------------------------------- monotonicity
POSITIVE = st.floats(1e-6, 1e3)


@given(st.fixed_dictionaries(dict.fromkeys(SECONDS, POSITIVE)), st.sampled_from(SECONDS), st.floats(1.0, 10.0))
def test_more_work_is_never_faster(seconds, name, factor):
    rate = rates(
        RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default")), read_efficiency()
    )
    few = combine(counted_work(**seconds), silence(gather_s=0.1), shape(), rate).total_s[0]
    # Unaligned and whole products are one sum: their difference alone is extra work.
    many = combine(
        counted_work(**seconds | {name: seconds[name] * factor}), silence(gather_s=0.1), shape(), rate
    ).total_s[0]
    assert many >= few * (1 - 1e-9)


SENT = ("tensor_s", "context_s", "expert_s", "pipeline_s", "gather_s", "scatter_s", "gradients_s")


@given(st.fixed_dictionaries(dict.fromkeys(SENT, POSITIVE)), st.sampled_from(SENT), st.floats(1.0, 10.0))
def test_more_communication_is_never_faster(seconds, name, factor):
    rate = rates(
        RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default")), read_efficiency()
    )
    few = combine(counted_work(products_s=1.0), silence(**seconds), shape(), rate).total_s[0]
    many = combine(
        counted_work(products_s=1.0), silence(**seconds | {name: seconds[name] * factor}), shape(), rate
    ).total_s[0]
    assert many >= few


@pytest.mark.parametrize("name", stack_names())
def test_more_recomputation_is_never_faster(name):
    rate = rates(
        RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack(name)), read_efficiency()
    )
    each = counted_work(products_s=1.0, attention_s=0.2, traffic_s=0.3, head_s=0.1, kernels=1000.0)
    times = [combine(each, silence(tensor_s=0.1), shape(recompute=way), rate).total_s[0] for way in RECOMPUTES]
    assert times == sorted(times)


def test_layouts_are_each_combined_as_if_alone():
    plans = [ParallelPlan(dp_shard=64), ParallelPlan(pp=4, tp=4, dp_replicate=4), ParallelPlan(dp_shard=8, cp=8)]
    ways = ["none", "full", "selective"]
    rate = rates(
        RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default")), read_efficiency()
    )

    def step_of(chosen, recomputes):
        each = counted_work(products_s=1.0, attention_s=0.2)
        return combine(each, silence(tensor_s=0.1, gather_s=0.5), Layouts.of(chosen, recomputes, WORK), rate).total_s

    together = step_of(plans, ways)
    assert together.tolist() == [step_of([plan], [way])[0] for plan, way in zip(plans, ways, strict=True)]
