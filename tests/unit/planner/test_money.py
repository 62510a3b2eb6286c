from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue import device as catalogue
from trainwright.hardware.prices import checked, price_list
from trainwright.planner.money import rental


def test_cost_is_time_times_the_cheapest_checked_price(workload):
    found = rental(LLAMA, workload, catalogue("h100-sxm"), price_list())
    price = price_list().cheapest("h100-sxm")
    assert found.fits
    assert found.usd == pytest.approx(found.seconds / 3600 * price.usd_per_device_hour)
    assert found.seconds_low < found.seconds < found.seconds_high
    assert found.source == price.source


def test_an_unknown_price_is_unknown(workload):
    found = rental(LLAMA, workload, catalogue("h100-sxm"), checked([]))
    assert found.usd is None
    assert "no checked price" in found.reason


def test_a_device_without_bf16_computes_in_fp32_and_says_so(workload):
    found = rental(LLAMA, workload, catalogue("t4"), price_list())
    assert "fp32" in found.reason
    assert found.seconds > rental(LLAMA, workload, catalogue("l4"), price_list()).seconds


def test_what_is_too_large_does_not_fit(workload):
    large = replace(LLAMA, layers=80, width=8192, heads=64, kv_heads=8, head_size=128, ffn_width=28672)
    found = rental(large, workload, catalogue("l4"), price_list())
    assert not found.fits
    assert "needs" in found.reason


def test_a_device_without_published_rates_is_not_guessed(workload):
    found = rental(LLAMA, workload, catalogue("gaudi"), price_list())
    assert not found.fits
    assert "no bf16 rate" in found.reason
