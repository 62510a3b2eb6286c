from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.rankable import ANY_CLUSTER, ANY_NODE, defaults_on, rankable, ranked_ways
from trainwright.planner.plan.scenario import scenario_of


def test_a_cluster_in_one_word_is_that_cluster():
    for name in ("64x8xh100-sxm", "1x1xrtx-4090"):
        assert cluster(name).name == name


def test_defaults_are_resolved_on_what_one_has():
    assert defaults_on(()) == ANY_CLUSTER
    assert defaults_on((cluster("8xa100-80gb"), cluster("8xh100-sxm"))) == "1x8xa100-sxm-80gb"


def test_the_batch_divides_over_every_cluster_of_the_pool():
    question = Question(model=model("llama3-8b"), on="3x8xh100-sxm", tokens=10**11, batch_tokens=8192 * 1000)
    pool = (cluster("3x8xh100-sxm"), cluster("8xa100-80gb"))
    run = rankable(question, pool).run
    assert run.workload.batch_sequences % 24 == 0
    assert run.workload.steps * run.workload.batch_tokens >= 10**11
    assert abs(run.workload.batch_sequences - 1000) < 500


def test_a_batch_that_divides_is_kept():
    question = Question(model=model("llama3-8b"), on="8xh100-sxm", tokens=10**11, batch_tokens=8192 * 512)
    assert rankable(question, ()).run == scenario_of(question).run


def test_a_batch_that_nobody_gave_is_not_said_to_be_given():
    asked = Question(model=model("llama3-8b"), on="1x6xh100-sxm", tokens=10**11)
    pool = (cluster("6xh100-sxm"),)
    (batch,) = [each for each in rankable(asked, pool).assumptions if each.key == "batch"]
    (before,) = [each for each in scenario_of(asked).assumptions if each.key == "batch"]
    assert batch.value != before.value and batch.origin == before.origin == "default"
    tried = before.source.removesuffix("; recommend tries larger ones too")
    assert batch.source == f"{tried}; rounded from {before.value:,.0f} tokens to what most powers of two divide"
    given = replace(asked, batch_tokens=8192 * 1001)
    (batch,) = [each for each in rankable(given, pool).assumptions if each.key == "batch"]
    assert batch.origin == "given" and batch.source.startswith("rounded from 8,200,192 tokens")


def test_a_rounded_batch_takes_the_tokens_that_were_asked_for():
    """Whole steps of the rounded batch, not of the one before it."""
    asked = Question(model=model("llama3-8b"), on="1x6xh100-sxm", tokens=10**11)
    work = rankable(asked, (cluster("6xh100-sxm"),)).run.workload
    assert work.steps == -(-(10**11) // work.batch_tokens)


def test_of_bought_machines_all_devices_are_paid_off_so_that_no_part_of_them_is_cheaper():
    asked = Question(model=model("llama3-8b"), on="8xh100-sxm", tokens=10**11)
    pool = (cluster("8xh100-sxm"),)
    _, found = ranked_ways(asked, pool, have_bought_usd=35_000.0, usd_per_kwh=0.0, devices=("l4",))
    (own,) = found.own
    assert own.devices == 8
    for each in (option for option in found.options if option.provider == own.provider):
        paid = each.usd_per_device_hour * each.devices
        assert abs(paid / (8 * own.usd_per_device_hour) - 1) < 1e-9, "an hour costs the same, whatever is used"


def test_images_begin_with_a_batch_of_a_few_hundred_and_larger_ones_cost_epochs():
    asked = Question(model=model("resnet-50"), on=ANY_CLUSTER)
    scenario, found = ranked_ways(asked, (), devices=["h100-sxm"], most_devices=256)
    assert scenario.run.workload.batch_tokens == 256
    (batch,) = [each for each in scenario.assumptions if each.key == "batch"]
    assert batch.value == "256 to 8,192" and "MLPerf" in batch.source
    images = {each.batch_tokens: each.tokens for each in found.options}
    assert len(images) > 2 and sorted(images) == [each for _, each in sorted(zip(images.values(), images, strict=True))]
    fastest = min(found.options, key=lambda each: each.seconds)
    ratio = fastest.tokens / scenario.run.workload.total_tokens
    assert ratio == pytest.approx((9450 + 0.2 * fastest.batch_tokens) / (9450 + 0.2 * 256), rel=1e-3)


def test_one_device_is_trained_on_as_its_software_does_it_alone():
    """torchtune's recipe of one device is for 24 GB: a recommendation looks at it as a plan does."""
    asked = Question(model=model("llama3-8b"), on=ANY_NODE, method="full", stack="torchtune")
    scenario, found = ranked_ways(asked, (), devices=["rtx-4090", "h100-sxm"])
    assert scenario.alone is not None and scenario.alone.run.workload.paged_moments
    assert not scenario.run.workload.paged_moments
    for device in ("rtx-4090", "h100-sxm"):
        (way, *_) = [
            each for each in found.options if (each.device, each.devices, each.price_kind) == (device, 1, "on_demand")
        ]
        plan = planned(scenario_of(replace(asked, on=device))).plan
        assert way.memory_bytes == pytest.approx(plan.estimate.memory.total_bytes, rel=0.1)
        assert way.tokens == plan.workload.total_tokens and way.batch_tokens == plan.workload.batch_tokens
        assert way.seconds == pytest.approx(plan.estimate.seconds.mid, rel=0.02)
    (said,) = [each for each in scenario.assumptions if each.key == "usual_alone"]
    assert "updates in the backward pass on" in str(said.value)


def test_batches_end_where_the_run_of_a_way_would_be_longer_than_any():
    asked = Question(model=model("llama3-8b"), on=ANY_CLUSTER, tokens=9 * 10**14)
    scenario, found = ranked_ways(asked, (), devices=["h100-sxm"], most_devices=512)
    assert max(each.tokens for each in found.options) <= 10**15
    (batch,) = [each for each in scenario.assumptions if each.key == "batch"]
    assert "as far as the run is long enough" in batch.source
