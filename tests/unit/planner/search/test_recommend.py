from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device as catalogue_device
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster as catalogue_cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.hardware.prices.clouds import billing_of
from trainwright.hardware.prices.price_list import checked
from trainwright.planner.cost.run_cost import RunSettings, run_cost
from trainwright.planner.counts.layouts import FixedLayout, Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.plan.cluster import plan_run, planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.layouts import best_layouts
from trainwright.planner.search.offers import OWN
from trainwright.planner.search.ranking import Goals, closest
from trainwright.planner.search.recommend import PROCESSORS, device_counts, recommend
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, Workload

STACK, MODEL = read_stack("default"), catalogue_model("llama3-8b")
DEVICES = ("h100-sxm", "a100-sxm-80gb", "mi300x")
WORK = Workload(
    sequence_tokens=8192, batch_tokens=256 * 8192, steps=10_000, precision="bf16", optimizer="adamw", states="mixed"
)

RUN = RunSpec(model=MODEL, workload=WORK, cluster=catalogue_cluster("8xt4"), stack=STACK)
"""On a cluster that is not among those looked at: it is no part of the answer."""


def row(device, usd, *, provider="Nebius", kind="on_demand", instance="x_8gpu-y"):
    return {
        "device": device,
        "provider": provider,
        "instance": instance,
        "kind": kind,
        "usd_per_device_hour": str(usd),
        "region": "somewhere",
        "source": "a list",
        "as_of": "2026-11-01",
        "note": "",
    }


PRICES = checked(
    [
        row("h100-sxm", 3.0),
        row("h100-sxm", 1.3, kind="spot"),
        row("h100-sxm", 2.9, provider="AWS"),
        row("h100-sxm", 1.4, provider="AWS", kind="spot"),
        row("a100-sxm-80gb", 1.6, provider="RunPod", instance="1x_A100"),
    ]
)


def recommended(**options):
    return recommend(RUN, **{"devices": DEVICES, "prices": PRICES, "most_devices": 512, **options})


@pytest.fixture(scope="module")
def everything():
    return recommended()


def test_an_option_is_the_best_layout_of_its_cluster_at_its_price(everything):
    for option in everything.options[::7]:
        asked = RunSpec(model=MODEL, workload=WORK, cluster=catalogue_cluster(option.cluster), stack=STACK)
        (best,) = best_layouts(asked, count=1)
        assert best.step_s == pytest.approx(option.step_s)
        layouts = Layouts.of([option.parallel], [option.recompute], WORK)
        usd = option.price and option.price.usd_per_device_hour
        spot = {"Nebius": "nebius", "AWS": "aws"}.get(option.provider) if option.price_kind == "spot" else None
        run = run_cost(
            forecast(asked, layouts, CATALOGUE),
            asked,
            total_tokens=WORK.total_tokens,
            usd_per_device_hour=usd,
            settings=RunSettings(spot_provider=spot, billing=billing_of(option.price)),
        )
        assert (option.low_s, option.high_s) == pytest.approx((run.low_s[0], run.high_s[0]))
        assert option.seconds == pytest.approx(run.seconds[0])
        assert option.usd == (None if usd is None else pytest.approx(run.usd[0]))
        assert option.devices == asked.cluster.devices


def test_memory_is_what_a_plan_of_the_option_prints(everything):
    for option in everything.options[::7]:
        question = Question(model=MODEL, workload=WORK, states=WORK.states, stack=STACK.name, on=option.cluster)
        fields = {field: field for field in FixedLayout.__optional_keys__} | {"micro_batch": "micro_batch_sequences"}
        fixed = {
            name: getattr(option.parallel, field) for name, field in fields.items() if hasattr(option.parallel, field)
        }
        fixed["recompute"] = option.recompute
        plan = plan_run(scenario_of(replace(question, layout=fixed)))
        assert plan.estimate.memory.total_bytes == pytest.approx(option.memory_bytes)


def test_the_front_is_what_no_priced_option_betters(everything):
    priced = [option for option in everything.options if option.usd is not None]
    expected = [
        one
        for one in priced
        if not any(
            other.seconds <= one.seconds
            and other.usd <= one.usd
            and (other.seconds, other.usd) != (one.seconds, one.usd)
            for other in priced
        )
    ]
    assert list(everything.front) == sorted(expected, key=lambda option: option.seconds)
    assert len(everything.front) > 1


def test_a_bigger_budget_never_gives_a_slower_best(everything):
    amounts = sorted(option.usd for option in everything.options if option.usd is not None)
    best = [recommended(goals=Goals(budget_usd=usd)).options[0] for usd in amounts[:: len(amounts) // 8]]
    times = [option.seconds for option in best]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_a_later_deadline_never_gives_a_dearer_best(everything):
    best = [recommended(goals=Goals(deadline_s=days * 86400)).options[0] for days in (1, 2, 4, 8, 16, 32)]
    amounts = [option.usd for option in best]
    assert amounts == sorted(amounts, reverse=True)
    assert all(option.seconds <= days * 86400 for option, days in zip(best, (1, 2, 4, 8, 16, 32), strict=True))


def test_without_goals_the_cheapest_comes_first_then_what_has_no_price(everything):
    priced = [option for option in everything.options if option.usd is not None]
    assert priced == sorted(priced, key=lambda option: (option.unsure, option.usd))
    unpriced = everything.options[len(priced) :]
    assert unpriced and all(option.usd is None for option in unpriced)
    assert [option.seconds for option in unpriced] == sorted(option.seconds for option in unpriced)


def test_three_ways_are_looked_at_first(everything):
    priced = [option for option in everything.options if option.usd is not None and not option.unsure]
    least = min(option.usd for option in priced)
    first, cheapest = everything.headlines[0]
    assert first.startswith("cheapest") and cheapest.usd == least
    (near,) = [option for name, option in everything.headlines if "fastest within 1.25 times that" in name]
    assert near.seconds == min(option.seconds for option in priced if option.usd <= 1.25 * least)
    (fastest,) = [option for name, option in everything.headlines if name.endswith("fastest")]
    assert fastest.seconds == min(option.seconds for option in priced)


def test_without_a_price_the_fastest_alone_is_named():
    answer = recommended(devices=["mi300x"])
    ((name, option),) = answer.headlines
    assert name == "fastest" and option.usd is None
    assert option.seconds == min(each.seconds for each in answer.options)


def test_nobody_waits_for_years_to_save_a_little():
    long = replace(RUN, workload=replace(WORK, steps=2_000_000))
    answer = recommend(long, devices=["h100-sxm"], prices=PRICES, most_devices=512)
    assert max(option.seconds for option in answer.options) <= 182 * 86400
    (left_out,) = [each for each in answer.refused if each.name == "too long"]
    assert left_out.count > 0 and "182 days" in left_out.reason
    alone = recommend(long, devices=["h100-sxm"], prices=PRICES, most_devices=8)
    assert alone.options and min(option.seconds for option in alone.options) > 182 * 86400


def test_a_larger_batch_serves_more_devices_and_takes_more_tokens():
    tokens = 1e12
    run = replace(RUN, workload=replace(WORK, batch_tokens=1 << 20, steps=int(tokens) >> 20))
    larger = (1 << 21, 1 << 22)
    rich = Goals(budget_usd=1e9)
    answer = recommend(run, devices=["h100-sxm"], prices=PRICES, most_devices=1024, batches=larger, goals=rich)
    one = recommend(run, devices=["h100-sxm"], prices=PRICES, most_devices=1024, goals=rich)
    by_devices = {option.devices: option for option in answer.options if option.price_kind == "on_demand"}
    alone = {option.devices: option for option in one.options if option.price_kind == "on_demand"}
    assert by_devices[16].batch_tokens == 1 << 20 and by_devices[1024].batch_tokens == 1 << 22
    # 512 x 93.20 x (1e12 / 20e6)^0.47 tokens is the critical batch, at which 20 % more are needed (arXiv 2410.21676).
    critical = 512 * 93.20 * 50_000**0.47
    dearer = (1 + 0.2 * (1 << 22) / critical) / (1 + 0.2 * (1 << 20) / critical)
    assert by_devices[1024].tokens == pytest.approx(dearer * tokens, rel=1e-4)
    assert all(by_devices[each].seconds <= 1.001 * alone[each].seconds for each in alone if each in by_devices)
    assert by_devices[1024].seconds < 0.9 * max(alone.values(), key=lambda each: each.devices).seconds


def test_adapters_are_trained_on_one_node_unless_asked():
    tuned = replace(RUN, workload=replace(WORK, adapter=Adapter(rank=16, targets=("query", "value"))))
    answer = recommend(tuned, devices=["h100-sxm"], prices=PRICES)
    assert max(option.devices for option in answer.options) == 8
    asked = recommend(tuned, devices=["h100-sxm"], prices=PRICES, most_devices=32)
    assert max(option.devices for option in asked.options) == 32


def test_what_is_fixed_of_the_layout_is_kept():
    answer = recommended(devices=["h100-sxm"], layout=FixedLayout(tp=4, recompute="full"))
    assert answer.options
    assert {(option.parallel.tp, option.recompute) for option in answer.options} == {(4, "full")}
    nothing = recommended(devices=["h100-sxm"], layout=FixedLayout(tp=7))
    assert not nothing.options and "as asked" in nothing.refused[0].reason


def test_a_given_price_stands_for_the_lists():
    answer = recommended(devices=["h100-sxm", "a100-sxm-80gb"], given={"h100-sxm": 2.0})
    for option in answer.options:
        assert (option.provider == "given") == (option.device == "h100-sxm")
        if option.provider == "given":
            assert option.usd == pytest.approx(2.0 * option.devices * option.seconds / 3600, rel=1e-9)


@pytest.mark.parametrize("given", [{"h100-sxm": 2.0}, None])
def test_of_devices_that_no_list_prices_no_more_are_to_be_had_at_once(given):
    short = replace(RUN, workload=replace(WORK, steps=1000))
    prices = PRICES if given else checked([row("a100-sxm-80gb", 1.6)])
    asked = {"devices": ["h100-sxm"], "prices": prices, "most_devices": 1024, "given": given}
    assert max(option.devices for option in recommend(short, **asked).options) == 512
    late = recommend(short, goals=Goals(deadline_s=1e9), **asked).options
    usd = {option.devices: option.usd for option in late if option.devices > 512}
    assert usd == {each: pytest.approx(2.0 * each * 30 * 24) if given else None for each in (768, 1024)}


def test_what_is_there_is_there_at_once():
    short = replace(RUN, workload=replace(WORK, steps=1000))
    own = catalogue_cluster("128x8xh100-sxm")
    answer = recommend(short, devices=["t4"], have=[own], have_usd_per_device_hour={"h100-sxm": 1.0}, prices=PRICES)
    (whole,) = [option for option in answer.options if option.devices == 1024]
    assert whole.usd == pytest.approx(1024 * whole.seconds / 3600)


def test_the_best_of_what_is_there_is_named_whether_it_meets_the_goals_or_not():
    asked = {"devices": ["h100-sxm"], "have": [catalogue_cluster("8xa100-sxm-80gb")]}
    (own,) = recommended(**asked).own
    assert (own.device, own.provider, own.devices) == ("a100-sxm-80gb", OWN, 8)
    late = recommended(**asked, goals=Goals(deadline_s=own.seconds / 2))
    assert late.own[0] == replace(own, front=late.own[0].front) and own.cluster not in {o.cluster for o in late.options}
    assert late.goals.missed_by(own) == "2.00 times the deadline"
    assert recommended(devices=["h100-sxm"]).own == ()


def test_more_devices_than_are_to_be_had_at_once_are_a_contract():
    short = replace(RUN, workload=replace(WORK, steps=1000))

    def ways(goals):
        return recommend(short, devices=["h100-sxm"], prices=PRICES, most_devices=1024, clouds=["nebius"], goals=goals)

    answer = ways(Goals(budget_usd=1e9))
    contract = [option for option in answer.options if option.devices == 1024]
    assert {option.price_kind for option in contract} == {"on_demand"}
    assert contract[0].usd == pytest.approx(3.0 * 1024 * 30 * 24)
    assert max(option.devices for option in answer.options if option.price_kind == "spot") == 256
    assert any("at once" in each.reason for each in answer.refused)
    # Hours of a month that is paid for: nobody signs it unless goals ask for that.
    unasked = ways(None)
    assert max(option.devices for option in unasked.options) == 512
    assert any("paid for nothing" in each.reason for each in unasked.refused)
    assert "reserved" not in {option.price_kind for option in unasked.options}


def test_goals_that_nothing_meets_name_the_nearest_on_both_sides():
    goals = Goals(budget_usd=10.0, deadline_s=3600.0)
    answer = recommended(goals=goals)
    assert answer.options == ()
    everything = recommended().options
    priced = [option for option in everything if option.usd is not None]
    # Nothing is in time, nothing is within the budget: the fastest and the cheapest.
    assert answer.closest[0].seconds == min(option.seconds for option in priced)
    assert answer.closest[1].usd == min(
        option.usd for option in recommended(goals=Goals(deadline_s=1e9)).options if option.usd
    )
    missed = {refusal.name: refusal for refusal in answer.refused if refusal.kind == "goal"}
    assert missed["too late"].count >= len(everything)
    assert "times the budget" in missed["too dear"].reason


def test_the_closest_within_one_goal_is_the_best_in_the_other(everything):
    priced = [option for option in everything.options if option.usd is not None]
    deadline = min(option.seconds for option in priced)
    budget = min(option.usd for option in priced if option.seconds <= deadline) * 0.999
    in_time, within = closest(priced, Goals(budget_usd=budget, deadline_s=deadline))
    assert in_time.seconds <= deadline and in_time.usd == pytest.approx(budget / 0.999)
    assert within.usd <= budget
    assert within.seconds == min(option.seconds for option in priced if option.usd <= budget)


def test_spot_is_cheaper_slower_and_checkpoints_more_often(everything):
    def bought(kind):
        (one,) = [
            each
            for each in everything.options
            if each.cluster == "32x8xh100-sxm" and each.provider == "Nebius" and each.price_kind == kind
        ]
        return one

    spot, demand = bought("spot"), bought("on_demand")
    assert spot.seconds > demand.seconds and spot.usd < demand.usd
    assert spot.interruptions > demand.interruptions
    assert spot.checkpoint_interval_s < demand.checkpoint_interval_s


def test_what_is_there_already_costs_what_it_is_said_to():
    answer = recommended(have=[catalogue_cluster("4x8xa100-80gb")])
    owned_ways = [option for option in answer.options if option.provider == OWN]
    assert {option.devices for option in owned_ways} <= {1, 2, 4, 8, 16, 32}
    assert answer.options[0] == min(owned_ways, key=lambda option: option.seconds)
    assert all(option.usd == 0 for option in owned_ways)
    paid = recommended(have=[catalogue_cluster("4x8xa100-80gb")], have_usd_per_device_hour={"a100-sxm-80gb": 2.0})
    for option in paid.options:
        if option.provider == OWN:
            assert option.usd == pytest.approx(option.seconds / 3600 * option.devices * 2.0)


def test_an_instance_that_is_less_than_a_node_is_had_alone():
    # Eight machines of one A100 are no node of eight: no fast links join them.
    small = replace(RUN, model=catalogue_model("gpt2"), workload=replace(WORK, sequence_tokens=1024))
    answer = recommend(small, devices=["a100-sxm-80gb"], prices=PRICES, most_devices=64)
    assert {option.devices for option in answer.options} == {1}


def test_what_is_left_out_has_its_reason():
    answer = recommended(devices=("h100-sxm", "gtx-1080-ti", "t4"), most_devices=8, clouds=["nebius", "aws"])
    reasons = {refusal.name: refusal for refusal in answer.refused}
    assert reasons["t4"].reason == "no known price in these clouds"
    huge = recommend(
        replace(RUN, model=catalogue_model("llama3-70b")), devices=("t4", "gtx-1080-ti"), prices=PRICES, most_devices=64
    )
    reasons = {refusal.name: refusal for refusal in huge.refused}
    assert "alone are" in reasons["t4"].reason and reasons["t4"].kind == "device"
    assert huge.options == huge.closest == ()


def test_processors_are_looked_at_where_they_are_named():
    """Alone, as what is there already, and never among all devices: then a line says how many were left out."""
    small = replace(RUN, model=catalogue_model("gpt2-124m"), workload=replace(WORK, sequence_tokens=1024, steps=10))
    owned = recommend(small, prices=PRICES, have=[catalogue_cluster("2xepyc-9654")], most_devices=8)
    assert {each.device for each in owned.options if each.provider == OWN} == {"epyc-9654"}
    rented = {each.device for each in owned.options if each.provider != OWN}
    assert rented and not any(catalogue_device(name).kind == "cpu" for name in rented)
    left = [each for each in owned.refused if each.name == PROCESSORS]
    assert [each.count for each in left] == [sum(catalogue_device(name).kind == "cpu" for name in device_names())]
    named = recommend(small, prices=PRICES, devices=("xeon-8380",), most_devices=4)
    assert {each.device for each in named.options} == {"xeon-8380"}
    assert {each.precision for each in named.options} == {"fp32"}
    assert not any(each.name == PROCESSORS for each in named.refused)


def test_a_run_that_is_mostly_validation_ends():
    validated = replace(WORK, steps=300, validations=30, validation_tokens=20 * WORK.batch_tokens)
    answer = recommend(replace(RUN, workload=validated), devices=["h100-sxm"], prices=PRICES, most_devices=64)
    assert answer.options and not any(each.kind == "price" for each in answer.refused)


def test_unknown_names():
    with pytest.raises(RecipeError, match="unknown device"):
        recommended(devices=["h1000"])
    with pytest.raises(RecipeError, match="unknown cloud"):
        recommended(clouds=["cloudy"])


def test_numbers_of_devices():
    assert device_counts(catalogue_cluster("64x8xh100-sxm")) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert device_counts(catalogue_cluster("12x8xh100-sxm"), finer=True) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96]
    assert device_counts(catalogue_cluster("3x8xh100-sxm")) == [1, 2, 4, 8, 16, 24]
    assert device_counts(catalogue_cluster("2x6xmax-1550")) == [1, 2, 4, 6, 12]


def test_time_and_dollars_have_ranges(everything):
    for option in everything.options[::5]:
        assert option.low_s < option.seconds < option.high_s
        if option.usd is not None:
            assert option.usd_low < option.usd < option.usd_high
            # Nebius counts in minutes.
            assert option.usd_high / option.usd == pytest.approx(option.high_s / option.seconds, rel=60 / option.low_s)
        assert 0 < option.mfu < 1
        assert option.memory_bytes <= option.memory_available_bytes


def test_a_price_that_doubles_doubles_the_cost_and_nothing_else():
    dear = checked([row("h100-sxm", 6.0)])
    cheap = checked([row("h100-sxm", 3.0)])
    one, two = (recommended(devices=["h100-sxm"], prices=prices) for prices in (cheap, dear))
    assert np.allclose([2 * option.usd for option in one.options], [option.usd for option in two.options])
    assert [
        replace(option, usd=0, usd_low=0, usd_high=0, usd_per_device_hour=0, price=None) for option in one.options
    ] == [replace(option, usd=0, usd_low=0, usd_high=0, usd_per_device_hour=0, price=None) for option in two.options]


def test_at_a_given_rate_each_way_takes_six_operations_a_parameter_and_token():
    answer = recommended(devices=["h100-sxm"], flops_per_s=4e14)
    operations = 6 * total_parameters(MODEL) * WORK.total_tokens
    for option in answer.options:
        assert option.at_rate_s == pytest.approx(operations / (4e14 * option.devices), rel=0.1)
        planned_run = planned(scenario_of(Question(model=MODEL, workload=WORK, on=option.cluster, flops_per_s=4e14)))
        assert option.at_rate_s == pytest.approx(planned_run.at_rate.seconds)
    assert {option.at_rate_s for option in recommended(devices=["h100-sxm"]).options} == {None}
