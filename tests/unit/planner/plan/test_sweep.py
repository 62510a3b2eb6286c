from dataclasses import replace

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.cluster import plan_run
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.sweep import parse_sweep, sweep, varied

ASKED = Question(model=catalogue_model("llama3-8b"), on="4x8xh100-sxm", tokens=10**11)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("nodes=1,2,4", ("1", "2", "4")),
        ("nodes=1,2,4,...,32", ("1", "2", "4", "8", "16", "32")),
        ("nodes=1,...,8", ("1", "2", "4", "8")),
        ("nodes=2,4,6,...,10", ("2", "4", "6", "8", "10")),
        ("nodes=4, 4,8", ("4", "8")),
        ("scale_out=100Gb/s,400Gb/s", ("100Gb/s", "400Gb/s")),
    ],
)
def test_values_are_lists_or_series(text, values):
    assert parse_sweep(text)[1] == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node=1", r"nothing to vary .*did you mean 'nodes'"),
        ("nodes", "nothing to vary"),
        ("nodes=", "no values"),
        ("nodes=1,2,...,7", "does not reach 7"),
        ("nodes=...,7", "dots stand before"),
        ("nodes=4,2,...,1", "not reach"),
    ],
)
def test_values_that_cannot_be_read_are_refused(text, message):
    with pytest.raises(RecipeError, match=message):
        parse_sweep(text)


def test_a_point_is_the_plan_of_the_question_with_one_thing_changed():
    points = sweep(ASKED, "sequence", ("2048", "4096")).points
    plan = plan_run(scenario_of(replace(ASKED, sequence_tokens=4096)))
    assert points[1].step_s == pytest.approx(plan.estimate.phases.total_s)
    assert points[1].usd == plan.estimate.usd


def test_strong_scaling_keeps_the_batch_and_weak_scaling_grows_it():
    swept = sweep(ASKED, "nodes", ("1", "2", "4"))
    strong = [point for point in swept.points if point.series == "strong"]
    weak = [point for point in swept.points if point.series == "weak"]
    assert len({point.batch_tokens for point in strong}) == 1
    assert [point.batch_tokens // weak[0].batch_tokens for point in weak] == [1, 2, 4]
    assert [point.devices for point in strong] == [8, 16, 32]
    assert strong[0].efficiency == 1


def test_devices_stop_paying_where_the_batch_runs_out():
    small = replace(ASKED, batch_tokens=64 * 8192, sequence_tokens=8192)
    swept = sweep(small, "nodes", tuple(str(2**power) for power in range(8)))
    strong = [point for point in swept.points if point.series == "strong" and point.efficiency is not None]
    assert swept.stops_at is not None
    assert swept.stops_at < strong[-1].devices
    first = strong[0].tokens_per_s / strong[0].devices
    place = next(place for place, point in enumerate(strong) if point.devices == swept.stops_at)
    more = strong[place + 1]
    gained = (more.tokens_per_s - strong[place].tokens_per_s) / (more.devices - strong[place].devices)
    assert gained < 0.5 * first


def test_slower_links_expose_more():
    points = sweep(ASKED, "scale_out", ("25Gb/s", "400Gb/s")).points
    assert points[0].exposed_s / points[0].step_s > points[1].exposed_s / points[1].step_s
    assert points[0].step_s > points[1].step_s


def test_what_cannot_be_planned_says_why_and_the_rest_goes_on():
    points = sweep(ASKED, "tp", ("2", "3")).points
    assert points[0].step_s is not None
    assert "cannot be divided over tp=3" in points[1].reason
    with pytest.raises(RecipeError, match="no value of tp can be planned"):
        sweep(ASKED, "tp", ("3",))


def test_anything_of_the_layout_or_the_question_can_vary():
    assert varied(ASKED, "tp", "4").layout == {"tp": 4}
    assert varied(ASKED, "batch", "4M").batch_tokens == 4_000_000
    assert varied(ASKED, "nodes", "2").on == "2x8xh100-sxm"
    assert varied(ASKED, "scale_up", "pcie4").scale_up == "pcie4"
    plugged = replace(ASKED, unmeasured={"optimizer": "mine:Opt", "task": "mine:TASK"})
    assert varied(plugged, "optimizer", "muon").unmeasured == {"task": "mine:TASK"}
    with pytest.raises(RecipeError, match=r"unknown optimizer .*did you mean 'adamw'"):
        varied(ASKED, "optimizer", "adam")
    with pytest.raises(RecipeError, match="at least one node"):
        varied(ASKED, "nodes", "0")


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        ("sequence", "1e99", r"less or more than any run has .seen sequence=1e99, expected 1 to 1e\+08"),
        ("tokens", "15Q", r"less or more than any run has .seen tokens=15Q, expected 1 to 1e\+15"),
        ("rank", "8", "all weights are trained, and no adapters .seen rank=8"),
    ],
)
def test_what_no_run_has_is_refused_as_where_it_is_asked_for_alone(axis, value, message):
    with pytest.raises(RecipeError, match=f"sweep: {message}"):
        sweep(ASKED, axis, (value,))


def test_given_prices_are_those_of_the_devices_that_are_varied_over():
    asked = replace(ASKED, price={"h100-sxm": 2.0, "l4": 0.5})
    h100, a100, unknown = sweep(asked, "on", ["8xh100-sxm", "8xa100-80gb", "8xh1000"]).points
    assert h100.usd.mid == pytest.approx(2.0 * 8 * h100.seconds.mid / 3600, rel=1e-6)
    assert a100.usd == plan_run(scenario_of(replace(ASKED, on="8xa100-80gb"))).estimate.usd
    assert "unknown device" in unknown.reason
    with pytest.raises(RecipeError, match="^price: no price of these devices .seen l4, expected h100-sxm=USD or"):
        sweep(replace(ASKED, price={"l4": 0.5}), "on", ["8xh100-sxm", "8xa100-80gb"])
