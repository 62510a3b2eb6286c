from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.hardware.prices.price_list import given_price
from trainwright.planner.cost.keeping import kept_of
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.search.bought import bought
from trainwright.planner.search.layouts import compare
from trainwright.planner.search.offers import GIVEN, UNLISTED, Offer
from trainwright.planner.search.ranking import Goals

RUN = scenario_of(Question(model=model("llama3-8b"), on="4x8xh100-sxm", tokens=10**10)).run


def ways(offer, *, run=RUN, goals=None):
    """Returns the options of 8, 16 and 32 devices at an offer, and what was left out."""
    left_out = []
    compared = compare(run, [8, 16, 32])
    fastest = compared.forecast(compared.best(np.ones(len(compared.step_s))))
    found = bought(
        fastest,
        offer,
        kept_of(run),
        tokens=np.full(len(fastest.layouts), 1e10),
        goals=goals or Goals(),
        refuse=lambda *each: left_out.append(each),
        flops_per_s=1e14,
    )
    return found, left_out


def at(usd, **more):
    price = given_price("h100-sxm", usd, "on_demand")
    return Offer(**({"provider": GIVEN, "kind": None, "usd_per_device_hour": usd, "price": price} | more))


def test_dollars_are_devices_and_hours_at_the_price():
    found, left_out = ways(at(2.5))
    assert [each.devices for each in found] == [8, 16, 32] and not left_out
    for each in found:
        assert each.usd == pytest.approx(2.5 * each.devices * each.seconds / 3600)
        assert each.tokens >= 1e10 and each.tokens % each.batch_tokens == 0
        steps = each.tokens / each.batch_tokens
        assert each.seconds > steps * each.step_s and each.low_s < each.seconds < each.high_s
        assert each.at_rate_s == pytest.approx(6 * 7.5e9 * each.tokens / (1e14 * each.devices), rel=0.1)


def test_only_whole_instances_that_are_there_are_bought():
    assert [each.devices for each in ways(at(2.5, whole=16))[0]] == [16, 32]
    assert [each.devices for each in ways(at(2.5, devices=16))[0]] == [8, 16]


def test_more_than_are_to_be_had_at_once_are_left_out_with_their_number(monkeypatch):
    few = replace(UNLISTED, at_once=16, contracts=False)
    monkeypatch.setattr(Offer, "billing", property(lambda offer: few))
    found, left_out = ways(at(2.5))
    assert [each.devices for each in found] == [8, 16]
    assert left_out == [("h100-sxm None", "more devices than are to be had at once", 1)]
