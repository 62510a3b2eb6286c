"""Storage and egress against sums by hand, and what is not known of a cloud."""

import math
from dataclasses import replace

import pytest

from trainwright.core.units import GIB
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.prices.clouds import Storage, cloud, clouds
from trainwright.hardware.prices.price_list import price_of
from trainwright.planner.cost.keeping import MONTH_S, Kept, assumed, egress_usd, kept_of, storage_usd
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of

ASKED = Question(model=catalogue_model("gpt2-124m"), on="8xh100-sxm", tokens=10**9, clouds=("aws",))
PARAMETERS = 124_439_808


def kept(**changed):
    scenario = scenario_of(replace(ASKED, **changed))
    return kept_of(scenario.run, data_bytes=scenario.data_bytes, passes=scenario.passes)


def test_bytes_are_data_checkpoints_and_weights():
    """GPT-2's ids take two bytes (50,257 of them), text four; a checkpoint has weights and two moments in fp32."""
    found = kept()
    assert math.isclose(found.data_bytes, 1e9 * (2 + 4), rel_tol=1e-3)
    assert found.checkpoints_bytes == 2 * 12 * PARAMETERS
    assert found.out_bytes == 2 * PARAMETERS and found.base_bytes == 0
    assert kept(data_gib=3.5).data_bytes == 3.5 * GIB and kept(data_gib=3.5).source == "given"


def test_data_that_is_seen_several_times_lies_there_once():
    once, thrice = (kept(tokens=None, examples=10_000, epochs=epochs, method="full") for epochs in (1, 3))
    assert math.isclose(once.data_bytes, thrice.data_bytes, rel_tol=0.01)
    assert math.isclose(once.data_bytes, 10_000 * 200 * 6, rel_tol=0.01)


def test_of_adapters_they_alone_leave_and_their_model_lies_there():
    tuned = kept(tokens=None, method="lora")
    assert tuned.base_bytes == 2 * PARAMETERS
    assert 0 < tuned.out_bytes < 0.1 * tuned.base_bytes


def test_dollars_are_gib_times_months_and_what_is_beyond_the_free_ones():
    held = Kept(data_bytes=90 * GIB, checkpoints_bytes=10 * GIB, out_bytes=150 * GIB, source="given")
    facts = Storage(usd_per_gib_month=0.02, usd_per_gib_out=0.1, free_out_gib=100, source="a page")
    assert math.isclose(float(storage_usd(held, 2 * MONTH_S, facts)), 100 * 0.02 * 2)
    assert math.isclose(egress_usd(held, facts), 50 * 0.1)
    assert egress_usd(replace(held, out_bytes=99 * GIB), facts) == 0
    assert storage_usd(held, MONTH_S, Storage()) is None and egress_usd(held, Storage()) is None


def test_a_plan_has_both_beside_the_rental_and_its_total_names_what_it_leaves_out():
    made = planned(scenario_of(ASKED))
    found, rental = made.keeping, made.plan.estimate.usd.mid
    assert found.provider == "AWS" and found.without == ()
    assert math.isclose(found.total_usd, rental + found.storage_usd + found.egress_usd)
    assert math.isclose(found.months, made.plan.estimate.seconds.mid / MONTH_S)
    known = cloud("aws").storage.usd_per_gib_month
    assert math.isclose(found.storage_usd, found.kept.kept_bytes / GIB * found.months * known)
    unknown = planned(scenario_of(replace(ASKED, clouds=None, price=2.0))).keeping
    assert unknown.without == ("storage", "egress") and unknown.total_usd > 0
    assert planned(scenario_of(replace(ASKED, clouds=("azure",), on="8xh800-sxm"))).keeping is None


def test_what_they_rest_on_is_said():
    price = price_of("h100-sxm", "on_demand", usd=None, clouds=("aws",))
    bytes_, prices = assumed(kept(data_gib=2), price)
    assert bytes_.origin == "given" and "2 GiB of data (given)" in bytes_.source
    assert "0.023" in prices.value and cloud("aws").storage.source == prices.source
    given = replace(price, provider="", source="given")
    assert assumed(kept(), given)[1].source == "a given price names no cloud"


@pytest.mark.parametrize("each", clouds(), ids=lambda each: each.slug)
def test_every_price_of_a_cloud_has_its_source_and_no_source_stands_alone(each):
    facts = each.storage
    known = facts.usd_per_gib_month is not None or facts.usd_per_gib_out is not None
    assert known == (facts.source != "not known")
    assert 0 < (facts.usd_per_gib_month or 0.02) < 1 and 0 <= (facts.usd_per_gib_out or 0) < 0.5
