"""Published facts that nothing was fitted to, limits that need no measurement, and one formula for many layouts."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.forecast import forecast, model_flops_per_token
from trainwright.planner.forecast.time.step import StepTable
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.device import LinkSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(
    sequence_tokens=8192, batch_tokens=8192 * 512, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)
GPT3, LLAMA = catalogue_model("gpt3-175b"), catalogue_model("llama3-8b")
GPT3_WORK = replace(WORK, sequence_tokens=2048, batch_tokens=2048 * 1536, precision="fp16", states="fp32")
YEAR_S = 365.25 * 24 * 3600


def predicted(model, plans, *, on, work=WORK, by="megatron-core", recompute="none"):
    shape = Layouts.of(plans, [recompute] * len(plans), work)
    return forecast(RunSpec(model=model, workload=work, cluster=cluster(on), stack=stack(by)), shape, CATALOGUE)


# -------------------------------------------------------------------------------------------------- GPT-3 on one device
def test_gpt3_has_700_gb_of_weights_and_2100_gb_with_adams_states():
    prediction = predicted(GPT3, [ParallelPlan(zero_stage=0)], on="v100-sxm-32gb", work=GPT3_WORK, by="default").memory
    assert prediction.weights[0] == pytest.approx(700e9, rel=0.005)
    assert (prediction.weights + prediction.optimizer)[0] == pytest.approx(2100e9, rel=0.005)


def test_gpt3_takes_355_years_on_a_v100_at_28_tflops_and_half_at_what_the_card_reaches():
    """Lambda Labs (2020): 6 operations for each parameter and token, 300 billion tokens, and that rate."""
    tokens = 300e9
    by_six = 6 * total_parameters(GPT3) * tokens / 28e12 / YEAR_S
    assert by_six == pytest.approx(355, rel=0.01)
    with_attention = model_flops_per_token(GPT3, GPT3_WORK) * tokens / 28e12 / YEAR_S
    assert by_six < with_attention < 1.05 * by_six
    prediction = predicted(
        GPT3, [ParallelPlan(zero_stage=0)], on="v100-sxm-32gb", work=GPT3_WORK, by="megatron-2021", recompute="full"
    )
    # Tensor cores reach 125 TFLOP/s; runs with recomputation get 35 to 50 % of that as model operations.
    assert 0.35 < prediction.mfu[0] < 0.5
    years = tokens / prediction.tokens_per_s_per_device[0] / YEAR_S
    assert years == pytest.approx(with_attention * 28 / (prediction.mfu[0] * 125))
    assert 150 < years < 230
    assert not prediction.fits[0] and not prediction.uncertain[0]


# ------------------------------------------------------------------------------------------- published, and not fitted
@pytest.mark.parametrize(
    ("nodes", "plan", "sequence", "batch", "tflops"),
    [
        (1024, {"dp_shard": 64}, 8192, 2048, 430),
        (2048, {"dp_shard": 128}, 8192, 2048, 400),
        (2048, {"dp_shard": 8, "cp": 16}, 131072, 128, 380),
    ],
)
def test_llama_3_405b_runs_as_fast_as_reported(nodes, plan, sequence, batch, tflops):
    """arXiv 2407.21783, table 4: BF16 TFLOP/s of a GPU, TP 8, PP 16 interleaved layer by layer, no recomputation.

    It does not say how attention counts. The last row's is 57 % of all operations when counted in full; what it reports
    agrees with what the causal mask leaves. It is predicted 10 to 19 % faster: nobody knows their network's congestion.
    """
    work = replace(WORK, sequence_tokens=sequence, batch_tokens=sequence * batch)
    chosen = ParallelPlan(tp=8, pp=16, zero_stage=2, schedule="interleaved", virtual_stages=8, **plan)
    prediction = predicted(catalogue_model("llama3.1-405b"), [chosen], on=f"{nodes}x8xh100-sxm", work=work)
    counted = count_flops(catalogue_model("llama3.1-405b"), sequences=1, sequence_tokens=sequence)
    visible = 1 - 3 * counted.hidden / counted.training
    assert prediction.mfu[0] * visible * 989.4 == pytest.approx(tflops, rel=0.2)


# --------------------------------------------------------------------------------------------------------------- limits
def test_more_devices_for_one_batch_never_make_each_faster():
    plans = [ParallelPlan(dp_shard=2**n) for n in range(4, 10)]
    prediction = [predicted(LLAMA, [plan], on=f"{plan.dp_shard // 8}x8xh100-sxm") for plan in plans]
    speeds = [each.tokens_per_s_per_device[0] for each in prediction]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(speeds))
    steps = [each.step_s[0] for each in prediction]
    assert steps == sorted(steps, reverse=True)


def test_with_links_without_end_hardly_anything_is_exposed():
    plans = [
        ParallelPlan(dp_shard=64),
        ParallelPlan(tp=8, dp_shard=8),
        ParallelPlan(tp=8, pp=4, dp_shard=2, zero_stage=1),
    ]
    machines = cluster("8x8xh100-sxm")
    endless = LinkSpec(name="endless", bytes_per_s=1e18, latency_s=1e-15)
    node = replace(machines.node, scale_up=endless)
    shape = Layouts.of(plans, ["none"] * 3, WORK)
    software = stack("megatron-core")
    real = forecast(RunSpec(model=LLAMA, workload=WORK, cluster=machines, stack=software), shape, CATALOGUE)
    ideal = forecast(
        RunSpec(model=LLAMA, workload=WORK, cluster=replace(machines, node=node, scale_out=endless), stack=software),
        shape,
        CATALOGUE,
    )
    for field in fields(StepTable):
        if field.name not in ("communicate", "idle"):
            assert getattr(ideal.step, field.name) == pytest.approx(getattr(real.step, field.name)), field.name
    assert np.all(ideal.step.communicate < 0.03 * ideal.step_s)
    assert np.all(ideal.step.communicate < real.step.communicate)


def test_a_faster_device_is_faster_and_none_passes_its_peak():
    names = ("a100-sxm-80gb", "h100-sxm", "b200-sxm")
    prediction = [predicted(LLAMA, [ParallelPlan(dp_shard=8)], on=f"8x{name}") for name in names]
    speeds = [each.tokens_per_s_per_device[0] for each in prediction]
    assert speeds == sorted(speeds)
    assert all(0.2 < each.mfu[0] < 0.8 for each in prediction)


def test_recomputation_is_slower_and_smaller():
    plans = [ParallelPlan(dp_shard=8)]
    none, some, full = (
        predicted(LLAMA, plans, on="8xh100-sxm", recompute=each) for each in ("none", "selective", "full")
    )
    assert none.step_s[0] < some.step_s[0] < full.step_s[0]
    assert none.memory.device_bytes[0] >= some.memory.device_bytes[0] > full.memory.device_bytes[0]


def test_offload_takes_time_and_gives_memory():
    plans = [ParallelPlan(dp_shard=8, offload=each) for each in ("none", "optimizer", "all")]
    prediction = predicted(LLAMA, plans, on="8xh100-sxm")
    assert prediction.step_s[0] < prediction.step_s[1] <= prediction.step_s[2]
    assert prediction.memory.device_bytes[0] > prediction.memory.device_bytes[1] > prediction.memory.device_bytes[2]
    assert prediction.step.forward[0] == prediction.step.forward[1]


# --------------------------------------------------------------------------------------------------------- bookkeeping
def test_figures_of_a_forecast_agree_with_each_other():
    plans = [ParallelPlan(dp_shard=64), ParallelPlan(tp=8, dp_shard=8, micro_batch_sequences=2)]
    prediction = predicted(LLAMA, plans, on="8x8xh100-sxm")
    assert prediction.tokens_per_s_per_device * prediction.step_s * 64 == pytest.approx(WORK.batch_tokens)
    assert prediction.mfu * 989.4e12 == pytest.approx(
        prediction.tokens_per_s_per_device * prediction.model_flops_per_token
    )
    assert np.all((prediction.low_s < prediction.step_s) & (prediction.step_s < prediction.high_s))
    assert prediction.low_s * prediction.high_s == pytest.approx(prediction.step_s**2)
    assert 75e9 < prediction.available_bytes <= 80 * 2**30
    assert prediction.fits.tolist() == [True, True]


def test_layouts_are_each_forecast_as_if_alone():
    plans = [
        ParallelPlan(dp_shard=64),
        ParallelPlan(tp=4, pp=4, dp_shard=4, zero_stage=1),
        ParallelPlan(cp=8, dp_shard=8),
        ParallelPlan(dp_shard=64, offload="optimizer"),
    ]
    together = predicted(LLAMA, plans, on="8x8xh100-sxm").step_s
    alone = [predicted(LLAMA, [plan], on="8x8xh100-sxm").step_s[0] for plan in plans]
    assert together.tolist() == pytest.approx(alone)


def test_adapters_take_about_four_operations_for_each_frozen_parameter():
    work = replace(WORK, sequence_tokens=512, batch_tokens=512 * 512)
    tuned = replace(work, adapter=Adapter(rank=8))
    active = total_parameters(LLAMA) - LLAMA.vocabulary * LLAMA.width  # the embedding is looked up, not multiplied
    assert model_flops_per_token(LLAMA, tuned) == pytest.approx(4 * active, rel=0.03)
    assert model_flops_per_token(LLAMA, work) == pytest.approx(6 * active, rel=0.03)


def test_images_are_sequences_of_a_convolutional_network():
    net = catalogue_model("resnet-50")
    work = replace(WORK, sequence_tokens=1, batch_tokens=256 * 8, states="fp32")
    plan = ParallelPlan(dp_replicate=8, micro_batch_sequences=256)
    prediction = predicted(net, [plan], on="8xa100-sxm-80gb", work=work, by="torch-amp")
    assert prediction.memory.activations[0] > 0 == prediction.sent.tensor_s
    # 2,500 to 3,000 images per second and A100 are published for mixed precision (NVIDIA DeepLearningExamples).
    assert 2000 < prediction.tokens_per_s_per_device[0] < 3500


def test_a_device_without_a_rate_for_the_precision_is_refused():
    with pytest.raises(RecipeError, match="gtx-1080-ti: no peak rate for fp16"):
        predicted(LLAMA, [ParallelPlan()], on="gtx-1080-ti", work=replace(WORK, precision="fp16"))


# ---------------------------------------------------------------------------------------------------------- DeepSeek-V3
def test_deepseek_v3_takes_the_step_that_its_hours_come_to():
    """2.664 M hours of 2,048 H800 for 14.8 T tokens (deepseek-ai/DeepSeek-V3@0b39205:README.md) in steps of 15,360
    sequences of 4,096 (section 4.2), on 16 stages, experts on 64 ranks, ZeRO-1, both ways (section 3.2).
    """
    model = catalogue_model("deepseek-v3")
    work = replace(WORK, sequence_tokens=4096, batch_tokens=15360 * 4096, precision="fp8")
    layout, on = {"pp": 16, "dp_shard": 128, "ep": 64, "zero_stage": 1}, "256x8xh800-sxm"
    published_s = 2.664e6 * 3600 / 2048 * work.batch_tokens / 14.8e12
    assert published_s == pytest.approx(19.9, abs=0.1)
    prediction = predicted(model, [ParallelPlan(**layout, schedule="dualpipe")], on=on, work=work, by="hai-llm")
    assert prediction.step_s[0] == pytest.approx(published_s, rel=0.12)
    # Full overlap, as the paper has it: without, experts alone would take a third of the step.
    one_way = predicted(model, [ParallelPlan(**layout)], on=on, work=work, by="megatron-core")
    assert prediction.step.communicate[0] < 0.03 * prediction.step_s[0]
    assert one_way.step.communicate[0] > 0.2 * one_way.step_s[0]
