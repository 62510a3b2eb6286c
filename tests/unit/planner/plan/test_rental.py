import math
from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.hardware.catalogue.devices import device as catalogue
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.hardware.prices.price_list import checked, price_list
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.rental import fastest_alone, rental
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload


def test_cost_is_time_times_the_cheapest_checked_price(workload):
    rented = rental(LLAMA, workload, catalogue("h100-sxm"), price_list())
    price = price_list().cheapest("h100-sxm")
    assert rented.fits
    # Vast counts by the second.
    assert price.provider == "Vast.ai"
    assert rented.usd == pytest.approx(math.ceil(rented.seconds) / 3600 * price.usd_per_device_hour)
    assert rented.seconds_low < rented.seconds < rented.seconds_high
    assert rented.source == price.source


def test_an_unknown_price_is_unknown(workload):
    rented = rental(LLAMA, workload, catalogue("h100-sxm"), checked([]))
    assert rented.usd is None
    assert "no checked price" in rented.reason


def test_a_device_without_bf16_computes_in_what_the_trainer_has_and_a_plan_there_does_too(workload):
    """A recipe takes bf16 or fp32 (``train.precision``), and no fp16, which a T4 is faster in."""
    rented = rental(LLAMA, workload, catalogue("t4"), price_list())
    assert rented.reason == "no bf16 there: fp32"
    there = Question(model=LLAMA, on="t4", stack="trainwright", workload=workload)
    assert scenario_of(there).run.workload.precision == "fp32"
    assert scenario_of(replace(there, stack="default")).run.workload.precision == "fp16"
    assert rented.seconds > rental(LLAMA, workload, catalogue("l4"), price_list()).seconds


def test_an_open_precision_is_the_devices_own_with_all_that_follows(workload):
    """This machine's fp32, with a base kept in it, is none of a rented device that has bf16."""
    frozen = replace(workload, precision="fp32", adapter=Adapter(rank=8, targets=("query",), frozen="fp32"))

    def at(precision):
        return replace(frozen, precision=precision, adapter=replace(frozen.adapter, frozen="bf16"))

    large = model("llama3-8b")
    here, there = (rental(large, frozen, catalogue("l4"), price_list(), at=each) for each in (None, at))
    assert not here.fits and there.fits
    assert there == rental(large, at("bf16"), catalogue("l4"), price_list())


def test_what_is_too_large_does_not_fit(workload):
    large = replace(LLAMA, layers=80, width=8192, heads=64, kv_heads=8, head_size=128, ffn_width=28672)
    rented = rental(large, workload, catalogue("l4"), price_list())
    assert not rented.fits
    assert "needs" in rented.reason


def test_a_device_without_published_rates_is_not_guessed(workload):
    rented = rental(LLAMA, workload, catalogue("gaudi"), price_list())
    assert not rented.fits
    assert "no bf16 rate" in rented.reason


def test_alone_on_a_device_the_fastest_micro_batch_that_fits():
    gpt2 = model("gpt2")
    work = Workload(sequence_tokens=1024, batch_tokens=1 << 19, steps=1, precision="bf16", optimizer="adamw")
    machine = cluster("a100-sxm-80gb")
    alone = fastest_alone(RunSpec(model=gpt2, workload=work, cluster=machine, stack=stack("trainwright")))
    assert bool(alone.fits[0])
    one = Layouts.of([ParallelPlan(compile=bool(alone.layouts.compile[0]))], ["none"], work)
    assert (
        alone.step_s[0]
        <= forecast(
            RunSpec(model=gpt2, workload=work, cluster=machine, stack=stack("trainwright")), one, CATALOGUE
        ).step_s[0]
    )
