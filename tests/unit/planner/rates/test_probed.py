"""On the ideal machine every answer is known: work over rate, at any shape and in any layout."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.planned_models import LLAMA
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.flops import count_flops, muon_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import block_matrices, block_matrix_parameters, total_parameters
from trainwright.planner.forecast.communication.exchange import exchange
from trainwright.planner.forecast.forecast import forecast, step_s
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.probed import Probed
from trainwright.spec.device import ClusterSpec, DeviceSpec, LinkSpec, NodeSpec
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload
from trainwright.testing.machine import BYTES_PER_S, FLOPS_PER_S, fake_probes

PROBED = Probed(probes=fake_probes())
RATE = FLOPS_PER_S["bf16"]
WORK = Workload(sequence_tokens=512, batch_tokens=512 * 8, steps=1, precision="bf16", optimizer="adamw")
DEVICE = DeviceSpec(
    name="Ideal CPU", kind="cpu", vendor="", memory_bytes=16 << 30, bytes_per_s=BYTES_PER_S, flops_per_s=FLOPS_PER_S
)
LINK = LinkSpec(name="10 Gb/s", bytes_per_s=1.25e9, latency_s=1e-5)


def run_of(model=LLAMA, work=WORK, devices=1):
    node = NodeSpec(device=DEVICE, devices=devices, scale_up=LINK if devices > 1 else None)
    return RunSpec(model=model, workload=work, cluster=ClusterSpec(node=node), stack=stack("trainwright"))


def kernels(run=None, *, without=(), recompute="none", **plan):
    run = run or run_of()
    return PROBED.kernels(run, Layouts.of([ParallelPlan(**plan)], [recompute], run.workload), without=without)


def between_bytes(model, tokens):
    """Two norms and two sums on the width, rotation of queries and keys, a transposition, the activation and gate."""
    queries, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    rotated = 4 * (queries + keys) if model.positions == "rope" else 0
    each = 10 * model.width + rotated + 2 * queries + (5 if model.gated else 2) * model.ffn_width
    return 2 * tokens * model.layers * each


# ----------------------------------------------------------------------------------------------------------- one device
def test_a_quick_measurement_is_trusted_less_than_a_thorough_one():
    """Nine of ten quick ones lie within 1.35 times either way, so that the slowest of ten is the one outside."""
    thorough, quick = (
        replace(PROBED, probes=replace(PROBED.probes, thorough=each)).spread(run_of()) for each in (True, False)
    )
    assert math.exp(INTERVAL * thorough) == pytest.approx(1.15, abs=0.005)
    assert math.exp(INTERVAL * quick) == pytest.approx(1.35, abs=0.01)


def test_a_pass_is_products_attention_traffic_and_loss(shape):
    flops = count_flops(shape, sequences=2, sequence_tokens=512)
    casts = 6 * block_matrix_parameters(shape) / BYTES_PER_S
    moved = between_bytes(shape, 1024) / BYTES_PER_S
    timed = kernels(run_of(shape), micro_batch_sequences=2)
    assert timed.forward[0] == pytest.approx((flops.linear + flops.attention) / RATE + moved + casts)
    assert timed.backward[0] == pytest.approx(2 * (flops.linear + flops.attention) / RATE + 2 * moved + casts)
    assert timed.weight[0] == pytest.approx(flops.linear / RATE)
    logits = 16 * 1024 * shape.vocabulary / BYTES_PER_S
    assert timed.head[0] == pytest.approx(3 * flops.head / RATE + logits)  # the loss takes its gradient there
    assert timed.head_evaluated[0] == pytest.approx(flops.head / RATE + logits / 3)
    assert timed.head_backward[0] == pytest.approx(3 * 4 * shape.vocabulary * shape.width / BYTES_PER_S)


@pytest.mark.parametrize("kind", ["products", "attention", "between", "head", "update"])
def test_kinds_of_work_add_up(kind):
    whole, without, alone = (
        kernels(without=kinds)
        for kinds in (
            (),
            (kind,),
            [each for each in ("products", "attention", "between", "head", "update") if each != kind],
        )
    )
    for name in ("forward", "backward", "head", "head_backward", "update"):
        parts = getattr(without, name)[0] + getattr(alone, name)[0]
        assert parts == pytest.approx(getattr(whole, name)[0])


def test_later_micro_batches_also_add_gradients():
    layouts = Layouts.of([ParallelPlan(micro_batch_sequences=each) for each in (8, 2)], ["none"] * 2, WORK)
    step = forecast(run_of(), layouts, PROBED).step
    casts = 6 * block_matrix_parameters(LLAMA) / BYTES_PER_S
    tables = 3 * 4 * LLAMA.vocabulary * LLAMA.width / BYTES_PER_S
    added = 12 * total_parameters(LLAMA) / BYTES_PER_S
    assert step.backward[1] - step.backward[0] == pytest.approx(3 * (added + casts + tables))
    assert step.update[0] == step.update[1] == pytest.approx(28 * total_parameters(LLAMA) / BYTES_PER_S)


def test_recomputation_adds_the_forward_pass_of_the_blocks():
    layouts = Layouts.of([ParallelPlan()] * 2, ["none", "full"], WORK)
    plain, again = forecast(run_of(), layouts, PROBED).step.backward
    assert again - plain == pytest.approx(8 * kernels().forward[0])


def test_muon_orthogonalises_the_blocks_and_leaves_the_rest_to_adamw():
    flops = LLAMA.layers * sum(muon_flops(*matrix) for matrix in block_matrices(LLAMA))
    matrices = block_matrix_parameters(LLAMA)
    rest = 28 * (total_parameters(LLAMA) - matrices) + 12 * matrices
    timed = kernels(run_of(work=replace(WORK, optimizer="muon"))).update[0]
    assert timed == pytest.approx(flops / FLOPS_PER_S["fp32"] + rest / BYTES_PER_S)


def test_an_optimizer_that_nobody_timed_takes_the_time_of_its_bytes():
    """Of SGD with momentum: weight, gradient and moment read, weight and moment written; and 12 bytes of clipping."""
    for optimizer, each in (("sgd", 20 + 12), ("plain-sgd", 12 + 12)):
        timed = kernels(run_of(work=replace(WORK, optimizer=optimizer))).update[0]
        assert timed == pytest.approx(each * total_parameters(LLAMA) / BYTES_PER_S), optimizer


def test_compiled_code_saves_between_products_alone():
    plain, compiled = (kernels(compile=each) for each in (False, True))
    assert plain.forward[0] - compiled.forward[0] == pytest.approx(0.4 * between_bytes(LLAMA, 512) / BYTES_PER_S)


def test_what_was_not_measured_is_refused():
    for work, problem in (
        (replace(WORK, precision="fp16"), "no rate for fp16 was measured"),
        (replace(WORK, adapter=Adapter(rank=8, frozen="int8")), "products with weights in int8 were not measured"),
    ):
        with pytest.raises(RecipeError, match=problem):
            kernels(run_of(work=work))


@given(busy=st.floats(0.26, 0.89))
def test_the_range_of_a_busy_machine_holds_what_it_does_alone(busy):
    probes = replace(fake_probes(), cpu_busy=busy)
    run = run_of()
    layouts = Layouts.of([ParallelPlan()], ["none"], run.workload)
    quiet, prediction = forecast(run, layouts, PROBED), forecast(run, layouts, Probed(probes=probes))
    assert prediction.step_s[0] == quiet.step_s[0], "what was measured is what is predicted"
    assert prediction.low_s[0] <= (1 - busy) * prediction.step_s[0]
    assert prediction.low_s[0] < quiet.low_s[0]
    assert prediction.high_s[0] > quiet.high_s[0]


# --------------------------------------------------------------------------------------------------------- many devices
@pytest.mark.parametrize("micro", [1, 2])
def test_two_devices_are_one_with_half_of_the_batch_and_the_exchange(micro):
    both, half = run_of(devices=2), run_of(work=replace(WORK, batch_tokens=WORK.batch_tokens // 2))
    plan = ParallelPlan(dp_replicate=2, micro_batch_sequences=micro, zero_stage=0)
    layouts = Layouts.of([plan], ["none"], WORK)
    alone = Layouts.of([replace(plan, dp_replicate=1)], ["none"], half.workload)
    two, one = forecast(both, layouts, PROBED).step, forecast(half, alone, PROBED).step
    for phase in ("forward", "backward", "update", "host", "idle"):
        assert getattr(two, phase)[0] == getattr(one, phase)[0]
    # An all-reduce of fp32 gradients between two: each sends half of them, and gets the other half back.
    sent = exchange(both, layouts).gradients_s[0]
    assert sent >= 4 * total_parameters(LLAMA) / LINK.bytes_per_s
    factor = CATALOGUE.exposure(both)
    # It hides behind the last of the backward passes, of which the first does not add to gradients of another.
    count, accumulate = layouts.micro_batches, forecast(both, layouts, PROBED).kernels.accumulate
    behind = factor.overlap * (two.backward - (count - 1) * accumulate) / count
    alone_s = factor.gradients * factor.link * sent
    assert two.communicate == pytest.approx((alone_s**4 + behind**4) ** 0.25 - behind)
    assert one.communicate[0] == 0
    assert two.total_s[0] == pytest.approx(one.total_s[0] + two.communicate[0])


def test_ranks_of_tensor_parallelism_share_products_and_head():
    one, two = kernels(), kernels(run_of(devices=2), tp=2)
    parts = ("products", "attention", "between", "head", "update")
    for kind in ("products", "attention"):
        rest = [each for each in parts if each != kind]
        whole, half = kernels(without=rest), kernels(run_of(devices=2), tp=2, without=rest)
        assert half.forward[0] == pytest.approx(whole.forward[0] / 2)
        assert half.backward[0] == pytest.approx(whole.backward[0] / 2)
    assert two.head[0] == pytest.approx(one.head[0] / 2)


def test_stages_share_the_blocks_and_shards_the_update():
    one, staged = kernels(), kernels(run_of(devices=2), pp=2, zero_stage=0)
    assert staged.forward[0] == pytest.approx(one.forward[0] / 2)
    sharded = kernels(run_of(devices=2), dp_shard=2)
    assert sharded.update[0] == pytest.approx(one.update[0] / 2)
    # FSDP casts the shards that it gathers.
    assert one.forward[0] - sharded.forward[0] == pytest.approx(6 * block_matrix_parameters(LLAMA) / BYTES_PER_S)


def test_layouts_are_each_predicted_as_if_alone():
    run = run_of(devices=4)
    plans = [ParallelPlan(dp_replicate=4, zero_stage=0), ParallelPlan(tp=2, dp_shard=2), ParallelPlan(pp=2, tp=2)]
    together = step_s(run, Layouts.of(plans, ["none", "full", "none"], WORK), PROBED)
    alone = [
        step_s(run, Layouts.of([plan], [way], WORK), PROBED)[0]
        for plan, way in zip(plans, ("none", "full", "none"), strict=True)
    ]
    assert together.tolist() == pytest.approx(alone)
