from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.pipeline.question_fields import read_fields
from trainwright.planner.forecast.forecast import step_s
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.ways import with_ways
from trainwright.planner.search.candidates import candidates


def test_a_convolutional_network_that_does_not_fit_is_told_what_would():
    asked = Question(model=catalogue_model("resnet-50"), on="rtx-4090", batch_tokens=4096, layout={"micro_batch": 4096})
    made = planned(scenario_of(asked))
    assert not made.plan.estimate.fits
    names = [each.name for each in with_ways(made).plan.rejected]
    assert names[0].startswith("layout auto") and "2 devices" in names


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("llama3-8b", "rtx-4090"),
        ("qwen3-8b", "rtx-3090"),
        ("llama3-8b", "2xa100-sxm-40gb"),
        ("llama3-70b", "8xh100-sxm"),
    ],
)
def test_the_plan_of_a_change_takes_the_time_that_the_change_promised(name, on):
    asked = Question(model=catalogue_model(name), on=on, **read_fields({"method": "full"}))
    made = with_ways(planned(scenario_of(asked)))
    assert not made.plan.estimate.fits
    told = 1 / made.plan.roomy.estimate.tokens_per_s
    there = [each for each in made.changes if "on" not in each.fields]
    assert {"LoRA", "QLoRA"} <= {each.name for each in there}
    for each in there:
        then = planned(scenario_of(replace(asked, **read_fields(dict(each.fields)))))
        assert then.choice.parallel == each.best.parallel, each.name
        takes = float(then.choice.forecast.step_s[0]) / then.plan.workload.step_tokens
        assert takes / told == pytest.approx(each.slowdown), each.name


def test_with_memory_enough_a_run_is_as_fast_as_its_fastest_layout():
    """Held against all layouts at once: no search, and no memory."""
    asked = Question(model=catalogue_model("llama3-70b"), on="8xh100-sxm", method="full")
    made = with_ways(planned(scenario_of(asked)))
    every = candidates(made.scenario.run, [8], wasteful=True).layouts
    fastest = float(step_s(made.scenario.run, every, made.scenario.source).min())
    steps_s = made.plan.workload.step_tokens / made.plan.roomy.estimate.tokens_per_s
    assert fastest * (1 - 1e-9) <= steps_s <= 1.05 * fastest, "the plainest that is about as fast"
    assert steps_s < 0.5 * float(made.choice.forecast.step_s[0]), "what needs least memory is slow"
    assert made.plan.roomy.parallel != made.plan.parallel
    assert all(each.slowdown > 0.8 for each in made.changes if "on" not in each.fields)


@pytest.mark.parametrize(("name", "on"), [("llama3-8b", "4xrtx-4090"), ("mixtral-8x7b", "16xl40s")])
def test_a_change_to_a_pipeline_takes_what_playing_it_out_takes(name, on):
    asked = Question(model=catalogue_model(name), on=on, tokens=10**12)
    made = with_ways(planned(scenario_of(asked)))
    piped = [each for each in made.changes if each.best.parallel.pp > 1]
    assert piped
    told, devices = made.plan.roomy.estimate.tokens_per_s, made.plan.cluster.devices
    for each in piped:
        fields = dict(each.fields)
        on = fields.pop("on", asked.on)
        then = planned(scenario_of(replace(asked, on=on, **read_fields(fields)))).plan
        assert then.parallel == each.best.parallel
        ratio = told / then.estimate.tokens_per_s * each.devices / devices
        assert ratio == pytest.approx(each.slowdown), each.name


@pytest.mark.parametrize("loss", [None, False])
@pytest.mark.parametrize(
    ("name", "on"),
    [("llama3-70b", "8xh100-sxm"), ("llama3-8b", "4xrtx-4090"), ("deepseek-v3", "16x8xh100-sxm")],
)
def test_adapters_in_place_of_a_training_from_the_start_see_the_same_where_it_is_said(name, on, loss):
    asked = Question(model=catalogue_model(name), on=on, tokens=10**12, fused_loss=loss)
    made = with_ways(planned(scenario_of(asked)))
    adapters = [each for each in made.changes if each.trains_less]
    assert [each.name for each in adapters] == [each.name for each in made.changes][-len(adapters) :]
    for each in adapters:
        then = planned(scenario_of(replace(asked, **read_fields(dict(each.fields))))).plan
        assert then.workload.sequence_tokens == made.plan.workload.sequence_tokens
        assert then.workload.example_tokens is None
        ratio = made.plan.roomy.estimate.tokens_per_s / then.estimate.tokens_per_s
        assert ratio == pytest.approx(each.slowdown), "the loss in chunks, as tuning makes it"


def test_adapters_where_nobody_says_on_what_to_train_are_told_as_another_run():
    made = with_ways(planned(scenario_of(Question(model=catalogue_model("llama3-8b"), on="rtx-4090"))))
    told = {each.name: each.reason for each in made.plan.rejected}
    assert told["QLoRA"] == "tunes adapters alone, on examples: another run"
    assert made.changes[0].fields == {"method": "qlora"}, "nobody trains such a model anew there"


@pytest.mark.parametrize(("name", "on"), [("llama3-8b", "8xrtx-4090"), ("qwen2.5-7b", "8xrtx-3090")])
def test_what_surely_fits_takes_the_time_that_is_told(name, on):
    asked = Question(model=catalogue_model(name), on=on)
    made = with_ways(planned(scenario_of(asked)))
    assert made.plan.estimate.fit == "uncertain"
    (change,) = made.changes
    assert not change.trains_less, "adapters are another run"
    then = planned(scenario_of(replace(asked, **read_fields(dict(change.fields)))))
    assert then.plan.estimate.fit == "fits"
    ratio = made.plan.estimate.tokens_per_s / then.plan.estimate.tokens_per_s
    assert ratio == pytest.approx(change.slowdown, rel=0.02)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("llama3-70b", {"on": "8xh100-sxm", "method": "full"}),
        ("llama3-70b", {"on": "8xh100-sxm", "method": "full", "batch_tokens": 16 * 2048}),
        ("llama3-70b", {"on": "8xa100-sxm-40gb", "method": "full", "stack": "torchtune"}),
        ("mixtral-8x7b", {"on": "2xh100-sxm", "method": "full"}),
        ("llama3-8b", {"on": "3xrtx-4090"}),
        ("resnet-50", {"on": "rtx-4090", "batch_tokens": 4096, "layout": {"micro_batch": 4096}}),
    ],
)
def test_more_devices_are_told_with_the_batch_that_they_have_then(name, asked):
    asked = Question(model=catalogue_model(name), **asked)
    made = with_ways(planned(scenario_of(asked)))
    more = [each for each in made.changes if "on" in each.fields]
    assert more
    for change in more:
        fields = dict(change.fields)
        then = planned(scenario_of(replace(asked, on=fields.pop("on"), **read_fields(fields)))).plan
        assert then.parallel == change.best.parallel
        ratio = made.plan.roomy.estimate.tokens_per_s / then.estimate.tokens_per_s
        assert ratio * change.devices / made.plan.cluster.devices == pytest.approx(change.slowdown), change.name


@pytest.mark.parametrize(
    ("name", "on", "batch"), [("vit-b-16", "7xa100-sxm-80gb", 1024 * 197), ("gpt2", "6xa100-sxm-80gb", 512_000)]
)
def test_a_batch_that_devices_do_not_divide_names_a_near_one_that_they_do(name, on, batch):
    asked = Question(model=catalogue_model(name), on=on, batch_tokens=batch)
    made = with_ways(planned(scenario_of(asked)))
    (change,) = made.changes
    then = planned(scenario_of(replace(asked, **read_fields(dict(change.fields)))))
    work, devices = then.plan.workload, then.plan.cluster.devices
    assert work.batch_sequences % devices == 0 and abs(work.batch_tokens / batch - 1) <= 0.05
    ratio = made.plan.estimate.tokens_per_s / then.plan.estimate.tokens_per_s
    assert ratio == pytest.approx(change.slowdown) and ratio < 0.75
    assert not with_ways(then).changes, "nothing is better than what divides"


def test_a_batch_is_left_where_what_is_fixed_of_the_layout_divides_no_other():
    fixed = {"pp": 3, "micro_batch": 25}
    asked = Question(model=catalogue_model("gpt2"), on="6xa100-sxm-80gb", batch_tokens=512_000, layout=fixed)
    made = with_ways(planned(scenario_of(asked)))
    assert made.plan.estimate.fits and not made.changes


def test_a_batch_is_left_where_another_is_hardly_faster():
    asked = Question(model=catalogue_model("llama3-8b"), on="6xh100-sxm", batch_tokens=125 * 8192)
    assert not with_ways(planned(scenario_of(asked))).changes
