"""Caches are transformers' own tensors, sizes those that papers print, and times what others measured."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.hardware.prices.price_list import price_of
from trainwright.planner.cost.serving import estimate_inference, interval, read_bytes
from trainwright.planner.cost.serving_memory import Serving, serving_memory


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_experts_read_are_those_that_somebody_chose(batch):
    spec = model("mixtral-8x7b")
    rng = np.random.default_rng(0)
    chosen = [len({e for _ in range(batch) for e in rng.choice(8, 2, replace=False)}) for _ in range(4000)]
    blocks, _ = read_bytes(spec, Serving(prompt_tokens=1, new_tokens=1, batch=batch))
    one = 2 * spec.layers * 3 * spec.width * spec.experts.ffn_width
    dense = 2 * spec.layers * (2 * spec.width * (spec.width + 1024) + 8 * spec.width)
    assert (blocks - dense) / one == pytest.approx(np.mean(chosen), rel=0.02)


# pytorch-labs/gpt-fast@0f925b5, README.md: tokens/s of one sequence, prompt of five tokens, A100 80 GB. READ_SHARE,
# WIDENED_SHARE and KERNEL_S come from here.
GPT_FAST = [
    ("llama2-7b", "bf16", 1, 104.9),
    ("llama2-7b", "int8", 1, 155.58),
    ("llama2-7b", "int4", 1, 196.80),
    ("llama2-70b", "int8", 1, 19.13),
    ("llama2-70b", "int4", 1, 25.25),
    ("llama2-7b", "bf16", 2, 168.84),
    ("llama2-7b", "bf16", 4, 254.02),
    ("llama2-7b", "bf16", 8, 328.43),
    ("llama2-70b", "bf16", 2, 21.32),
    ("llama2-70b", "bf16", 4, 38.01),
    ("llama2-70b", "bf16", 8, 62.50),
    ("llama2-70b", "int8", 8, 80.44),
    ("llama2-70b", "int4", 8, 90.77),
]
# InternLM/lmdeploy@3e391df, docs/en/benchmark/a100_fp16.md, static inference: batch, prompt, output, median seconds
# between tokens. Nothing is fitted to it.
LMDEPLOY = {
    ("llama2-7b", 1): [
        (1, 128, 128, 0.010),
        (1, 128, 2048, 0.010),
        (1, 2048, 2048, 0.011),
        (16, 128, 128, 0.011),
        (16, 128, 2048, 0.015),
        (16, 2048, 128, 0.020),
        (16, 2048, 2048, 0.025),
        (32, 128, 128, 0.012),
        (32, 128, 2048, 0.021),
        (32, 2048, 128, 0.031),
        (32, 2048, 2048, 0.040),
        (64, 128, 128, 0.014),
    ],
    ("llama2-13b", 1): [
        (1, 128, 128, 0.017),
        (1, 128, 2048, 0.018),
        (1, 2048, 2048, 0.019),
        (16, 128, 128, 0.019),
        (16, 128, 2048, 0.026),
        (16, 2048, 128, 0.033),
        (16, 2048, 2048, 0.040),
        (32, 128, 128, 0.021),
        (32, 128, 2048, 0.034),
        (64, 128, 128, 0.024),
    ],
    ("llama2-70b", 4): [
        (1, 128, 128, 0.029),
        (1, 128, 2048, 0.031),
        (1, 2048, 2048, 0.031),
        (16, 128, 128, 0.030),
        (16, 128, 2048, 0.033),
        (16, 2048, 2048, 0.036),
        (32, 128, 128, 0.032),
        (32, 128, 2048, 0.036),
        (32, 2048, 2048, 0.043),
        (64, 128, 128, 0.037),
        (64, 128, 2048, 0.043),
        (64, 2048, 2048, 0.055),
    ],
}
# Seconds to the first token, batch of one: the same lmdeploy table (fp16, A100), and NVIDIA/TensorRT-LLM@138f96d,
# docs/source/performance.md (v0.5, fp16 on A100 and fp8 on H100).
FIRST_TOKEN = [
    ("llama2-7b", "fp16", 1, 2048, "a100-sxm-80gb", 0.139),
    ("llama2-13b", "fp16", 1, 2048, "a100-sxm-80gb", 0.242),
    ("llama2-70b", "fp16", 4, 2048, "4xa100-sxm-80gb", 0.402),
    ("llama2-7b", "fp16", 1, 128, "a100-sxm-80gb", 0.016),
    ("llama2-7b", "fp16", 1, 2048, "a100-sxm-80gb", 0.133),
    ("llama2-70b", "fp16", 4, 128, "4xa100-sxm-80gb", 0.047),
    ("llama2-70b", "fp16", 4, 2048, "4xa100-sxm-80gb", 0.377),
    ("llama2-7b", "fp8", 1, 128, "h100-sxm", 0.007),
    ("llama2-7b", "fp8", 1, 2048, "h100-sxm", 0.036),
    ("llama2-70b", "fp8", 4, 128, "4xh100-sxm", 0.026),
    ("llama2-70b", "fp8", 4, 2048, "4xh100-sxm", 0.109),
]


def test_single_stream_decoding_as_gpt_fast_measured():
    errors = [
        _estimate(
            name, f"{tp}xa100-sxm-80gb", prompt_tokens=5, new_tokens=200, tp=tp, weights=weights
        ).tokens_per_s_per_user
        / measured
        - 1
        for name, weights, tp, measured in GPT_FAST
    ]
    assert median(map(abs, errors)) < 0.06 and max(map(abs, errors)) < 0.25


def test_batched_decoding_as_lmdeploy_measured_and_the_interval_holds_it():
    inside, errors = [], []
    for (name, tp), rows in LMDEPLOY.items():
        for batch, prompt, new, measured in rows:
            estimate = _estimate(
                name, f"{tp}xa100-sxm-80gb", prompt_tokens=prompt, new_tokens=new, batch=batch, tp=tp, weights="fp16"
            )
            assert estimate.fits
            errors.append(abs(estimate.step_s.mid / measured - 1))
            inside.append(estimate.step_s.low <= measured <= estimate.step_s.high)
    assert median(errors) < 0.06
    assert sum(inside) >= 0.85 * len(inside)


def test_first_tokens_as_measured():
    errors = [
        abs(_estimate(name, on, prompt_tokens=prompt, new_tokens=1, tp=tp, weights=weights).first_token_s.mid / s - 1)
        for name, weights, tp, prompt, on, s in FIRST_TOKEN
    ]
    # Farthest: 128 rows over four devices, whose few tiles libraries split along what is summed.
    assert median(errors) < 0.1 and max(errors) < 0.46


def test_largest_batch_and_length_are_the_last_that_fit():
    spec, stack = model("llama2-7b"), read_stack("default")
    serving = Serving(prompt_tokens=1024, new_tokens=1024)
    estimate = estimate_inference(spec, serving, cluster("a100-sxm-80gb"))
    for batch, fits in ((estimate.largest_batch, True), (estimate.largest_batch + 1, False)):
        memory = serving_memory(spec, replace(serving, batch=batch), stack)
        assert (memory.total_bytes <= estimate.memory_available_bytes) is fits
    assert estimate.largest_tokens == spec.context_tokens
    crowded = estimate_inference(spec, replace(serving, batch=100), cluster("a100-sxm-80gb"))
    assert not crowded.fits and 0 < crowded.largest_tokens < 2048


def test_what_does_not_fit_at_all_has_no_largest_batch():
    estimate = _estimate("llama3-70b", "h100-sxm", prompt_tokens=100, new_tokens=100)
    assert not estimate.fits and estimate.largest_batch == 0 and estimate.largest_tokens == 0


def test_quantised_cache_and_weights_make_room_and_time():
    wide = _estimate("llama3-70b", "4xh100-sxm", prompt_tokens=4096, new_tokens=512, batch=32, tp=4)
    narrow = _estimate(
        "llama3-70b", "4xh100-sxm", prompt_tokens=4096, new_tokens=512, batch=32, tp=4, weights="fp8", cache="fp8"
    )
    assert narrow.largest_batch > 2 * wide.largest_batch
    assert narrow.step_s.mid < wide.step_s.mid and narrow.first_token_s.mid < wide.first_token_s.mid


def test_replicas_and_dollars():
    one = _estimate("llama3-8b", "h100-sxm", prompt_tokens=512, new_tokens=512, batch=64, usd_per_device_hour=2.0)
    eight = _estimate("llama3-8b", "8xh100-sxm", prompt_tokens=512, new_tokens=512, batch=64, usd_per_device_hour=2.0)
    assert eight.replicas == 8 and eight.tokens_per_s == pytest.approx(8 * one.tokens_per_s)
    assert one.usd_per_million_tokens.mid == pytest.approx(2.0 / 3600 / one.tokens_per_s * 1e6)
    assert eight.usd_per_million_tokens.mid == pytest.approx(one.usd_per_million_tokens.mid)
    assert _estimate("llama3-8b", "h100-sxm", prompt_tokens=1, new_tokens=1).usd_per_million_tokens is None


def test_bottlenecks():
    assert (
        _estimate("llama3-70b", "8xh100-sxm", prompt_tokens=64, new_tokens=64, tp=8).step.bottleneck
        == "reading weights"
    )
    long = _estimate("llama2-7b", "h100-sxm", prompt_tokens=3000, new_tokens=64, batch=32)
    assert long.step.bottleneck == "reading the cache"


def test_a_large_batch_reads_nearly_all_experts_and_still_pays():
    few, many = (
        _estimate("deepseek-v3", "2x8xh200-sxm", prompt_tokens=1024, new_tokens=64, batch=batch, tp=16, weights="fp8")
        for batch in (1, 256)
    )
    assert few.fits and many.fits
    assert 10 < many.step.weights / few.step.weights < 18  # all 256 experts in place of 8, beside what all tokens pass
    assert many.tokens_per_s > 10 * few.tokens_per_s


@pytest.mark.parametrize(
    ("name", "changes", "phrase"),
    [
        ("bert-base", {}, "no decoder"),
        ("llama3-8b", {"batch": 0}, "batch must be at least 1, seen 0"),
        ("llama3-8b", {"prompt_tokens": 9000}, "9001 tokens exceed the model's context"),
        ("llama3-8b", {"tp": 3}, "cannot be divided over tp=3"),
        ("llama3-8b", {"tp": 2}, "more devices than the cluster has"),
    ],
)
def test_what_cannot_be_served_says_why(name, changes, phrase):
    with pytest.raises(RecipeError, match=phrase):
        _estimate(name, "h100-sxm", **{"prompt_tokens": 1, "new_tokens": 1, **changes})


def test_interval_is_even_in_the_logarithm():
    span = interval(2.0)
    assert math.isclose(span.low * span.high, 4.0) and span.low < 2.0 < span.high


def _estimate(name, on, *, usd_per_device_hour=None, **serving):
    machines = cluster(on)
    usd = usd_per_device_hour
    price = None if usd is None else price_of(machines.device.name, "on_demand", usd=usd, clouds=None)
    return estimate_inference(model(name), Serving(**serving), machines, price=price)
