import math
from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.runs import read_runs
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.hardware.prices.clouds import Billing
from trainwright.planner.cost.goodput import started_s
from trainwright.planner.cost.run_cost import RunSettings, checkpoint_bytes, run_cost, token_bytes
from trainwright.planner.cost.scaling_laws import training_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

MODEL, CLUSTER, STACK = catalogue_model("llama3-8b"), catalogue_cluster("4x8xh100-sxm"), read_stack("torchtitan")
WORK = Workload(sequence_tokens=8192, batch_tokens=1 << 22, steps=1, precision="bf16", optimizer="adamw")
PLANS = [ParallelPlan(dp_shard=32), ParallelPlan(dp_shard=8, dp_replicate=4), ParallelPlan(dp_shard=16, tp=2)]


@pytest.fixture
def prediction():
    return forecast(
        RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK),
        Layouts.of(PLANS, ["full"] * 3, WORK),
        CATALOGUE,
    )


def asked(model, work):
    return RunSpec(model=model, workload=work, cluster=CLUSTER, stack=STACK)


def cost(prediction, **options):
    return run_cost(
        prediction,
        RunSpec(model=MODEL, workload=WORK, cluster=CLUSTER, stack=STACK),
        **{"total_tokens": 1e12, **options},
    )


def test_a_run_is_whole_steps_and_what_interrupts_them(prediction):
    run = cost(prediction)
    assert set(run.steps) == {-(-(10**12) // (1 << 22))}
    assert run.parts.steps_s == pytest.approx(run.steps * prediction.step_s)
    assert np.all(run.seconds > run.parts.steps_s)
    assert np.all((run.low_s < run.seconds) & (run.seconds < run.high_s))
    assert np.all(run.low_s >= run.steps * prediction.low_s * (1 - 1e-12))


def test_dollars_are_device_hours_at_the_price_of_each(prediction):
    run = cost(prediction, usd_per_device_hour=np.array([2.0, 2.0, 3.0]))
    assert run.usd == pytest.approx(run.seconds / 3600 * 32 * np.array([2.0, 2.0, 3.0]))
    assert run.usd_low / run.low_s == pytest.approx(run.usd / run.seconds)
    assert cost(prediction).usd is None


def test_an_adamw_checkpoint_of_fp32_states_has_twelve_bytes_a_parameter():
    assert checkpoint_bytes(asked(MODEL, WORK)) == 12 * total_parameters(MODEL)
    small = Workload(
        **{name: getattr(WORK, name) for name in ("sequence_tokens", "batch_tokens", "steps")},
        precision="bf16",
        optimizer="adamw",
        adapter=Adapter(rank=8, targets=("query",)),
    )
    # 32 layers, rank 8, 4096 inputs and outputs; weights and two moments in fp32.
    assert checkpoint_bytes(asked(MODEL, small)) == 3 * 4 * 32 * 8 * (4096 + 4096)


def test_a_checkpoint_has_no_copies_in_eight_bits():
    megatron = replace(asked(MODEL, replace(WORK, states="mixed")), stack=read_stack("megatron-core"))
    in_fp8 = replace(megatron, workload=replace(megatron.workload, precision="fp8"))
    # 2 bytes of weights, 4 of their master copy, 8 of AdamW's moments.
    assert checkpoint_bytes(in_fp8) == checkpoint_bytes(megatron) == 14 * total_parameters(MODEL)


def test_gpt3_has_the_sizes_and_the_years_that_articles_print():
    gpt3 = catalogue_model("gpt3-175b")
    work = Workload(sequence_tokens=2048, batch_tokens=2048, steps=1, precision="fp32", optimizer="adamw")
    assert 4 * total_parameters(gpt3) == pytest.approx(700e9, rel=0.01)
    assert checkpoint_bytes(asked(gpt3, work)) == pytest.approx(2100e9, rel=0.01)
    # 300 billion tokens on one V100 at 28 TFLOP/s.
    years = float(training_flops(total_parameters(gpt3), 300e9)) / 28e12 / (365 * 86_400)
    assert years == pytest.approx(355, rel=0.01)


def test_the_nodes_of_one_replica_write_a_checkpoint(prediction):
    run = cost(prediction)
    assert run.checkpoint_s[1] == pytest.approx(4 * run.checkpoint_s[0])
    assert run.checkpoint_s == pytest.approx(run.checkpoint_bytes / run.checkpoint_write_bytes_per_s)


def test_a_loader_reads_ids_of_the_vocabularys_size(prediction):
    assert token_bytes(MODEL, WORK) == 4
    assert token_bytes(catalogue_model("gpt2"), WORK) == 2
    assert cost(prediction).loader_bytes_per_s == pytest.approx(4 * WORK.batch_tokens / prediction.step_s)


def test_an_image_is_a_token_of_a_convolutional_network():
    network = catalogue_model("resnet-50")
    work = Workload(sequence_tokens=1, batch_tokens=256, steps=1, precision="bf16", optimizer="sgd")
    assert token_bytes(network, work) == 108e3
    # Weights and momentum in fp32.
    assert checkpoint_bytes(asked(network, work)) == 8 * total_parameters(network)


def test_spot_nodes_take_longer_and_are_interrupted_more_often(prediction):
    kept, spot = cost(prediction), cost(prediction, settings=RunSettings(spot_provider="gcp"))
    assert np.all(spot.parts.interruptions > 10 * kept.parts.interruptions)
    assert np.all(spot.seconds > kept.seconds)
    # Coming back is no work that is done again; all parts together are the run.
    assert np.all(
        (spot.parts.recovery_s > 0) & (spot.parts.recovery_s <= (1800 + spot.checkpoint_s) * spot.parts.interruptions)
    )
    assert np.all(spot.parts.lost_s >= 0) and spot.parts.total_s == pytest.approx(spot.seconds)


def test_validation_costs_its_forward_passes(prediction):
    validated = Workload(
        **{name: getattr(WORK, name) for name in ("sequence_tokens", "batch_tokens", "steps")},
        precision="bf16",
        optimizer="adamw",
        validations=10,
        validation_tokens=1 << 24,
    )
    run = run_cost(
        prediction, RunSpec(model=MODEL, workload=validated, cluster=CLUSTER, stack=STACK), total_tokens=1e12
    )
    assert np.all(run.parts.evaluation_s < 40 * prediction.step_s / 2)
    assert np.all(run.parts.evaluation_s > 40 * prediction.step_s / 5)


def test_validation_of_padded_examples_takes_steps_of_their_own_tokens(prediction):
    full = replace(WORK, validations=10, validation_tokens=1 << 24)
    padded = replace(full, example_tokens=WORK.sequence_tokens // 4)
    one, four = (
        run_cost(prediction, asked(MODEL, work), total_tokens=1e12).parts.evaluation_s for work in (full, padded)
    )
    assert four == pytest.approx(4 * one)


def test_an_hour_has_hardly_any_of_the_overhead_of_weeks(prediction):
    hour, weeks = cost(prediction, total_tokens=6e8), cost(prediction, total_tokens=1e12)
    overhead = read_runs().overhead_share(1e9, CLUSTER.devices)
    assert np.all(hour.parts.overhead_s < 0.05 * hour.parts.steps_s)
    share = weeks.parts.overhead_s / (weeks.seconds - weeks.parts.overhead_s)
    assert np.all((share < 1.001 * overhead) & (share > 0.5 * overhead))


def test_power_and_energy_agree(prediction):
    run = cost(prediction)
    # Building over machines is the same for all layouts.
    assert run.kwh / (run.power_w * run.seconds / 3.6e6) == pytest.approx(np.full(3, 1.15))


def test_time_is_paid_in_the_providers_steps_and_at_least_its_minimum(prediction):
    free = cost(prediction, total_tokens=1e7, usd_per_device_hour=2.0)
    hourly = Billing(granularity_s=3600.0, minimum_s=0.0, source="")
    paid = cost(prediction, total_tokens=1e7, usd_per_device_hour=2.0, settings=RunSettings(billing=hourly))
    devices = prediction.layouts.devices
    assert paid.seconds == pytest.approx(free.seconds)
    hours = [math.ceil(each / 3600) for each in free.seconds]
    assert paid.usd == pytest.approx(2.0 * np.asarray(hours) * devices)
    day = Billing(granularity_s=1.0, minimum_s=86400.0, source="")
    least = cost(prediction, total_tokens=1e7, usd_per_device_hour=2.0, settings=RunSettings(billing=day))
    assert least.usd == pytest.approx(24 * 2.0 * devices)
    assert least.usd_low == pytest.approx(least.usd)


def test_more_nodes_start_later():
    assert started_s(120.0, 1) == started_s(120.0, 0.125) == 120.0
    starts = started_s(120.0, np.asarray([1.0, 2.0, 16.0, 2048.0]))
    assert np.all(np.diff(starts) > 0)
    # Jobs of more than 100 GPUs start in six to seven minutes (arXiv 2507.12619).
    assert 360 <= starts[2] <= 420


def test_a_part_of_a_node_is_taken_back_as_often_as_the_node(prediction):
    """A cloud takes back the instance, whose size the interruptions do not ask after."""
    spot = RunSettings(spot_provider="aws", device_mtbf_s=1e15)
    two = forecast(prediction.run, Layouts.of([ParallelPlan(dp_shard=2)], ["full"], WORK), CATALOGUE)
    pair = replace(prediction.run, cluster=catalogue_cluster("2xh100-sxm"))
    of_larger, alone = (run_cost(two, run, total_tokens=1e10, settings=spot) for run in (prediction.run, pair))
    assert of_larger.parts.interruptions == pytest.approx(alone.parts.interruptions)
    assert of_larger.seconds == pytest.approx(alone.seconds)
