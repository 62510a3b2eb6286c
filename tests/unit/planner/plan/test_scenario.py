import math
from dataclasses import replace

import pytest

from fixtures.questions import LLAMA, assumption, scenario
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of


def test_what_is_given_is_kept():
    resolved = scenario(tokens=10**9, batch_tokens=1 << 20, sequence_tokens=4096, precision="fp8", stack="torchtitan")
    assert resolved.run.workload.batch_tokens == 1 << 20
    assert resolved.run.workload.steps == -(-(10**9) // (1 << 20))
    assert (resolved.run.workload.sequence_tokens, resolved.run.workload.precision) == (4096, "fp8")
    assert resolved.run.stack.name == "torchtitan"
    asked = {entry.key: (entry.value, entry.origin) for entry in resolved.assumptions}
    assert asked["length"] == (1e9, "given") and asked["sequence"] == (4096, "given")
    assert "batch" not in asked and asked["states"][1] == "default"
    assert assumption(scenario(states="pure"), "how trained weights are kept").origin == "given"


def test_what_is_not_is_chosen_and_said():
    resolved = scenario()
    assert resolved.run.workload.sequence_tokens == 8192
    assert abs(resolved.run.workload.total_tokens - 20 * total_parameters(LLAMA)) < resolved.run.workload.batch_tokens
    assert assumption(resolved, "batch").origin == "default"
    assert "Zhang" in assumption(resolved, "batch").source
    assert assumption(resolved, "tokens").value == 20 * total_parameters(LLAMA)


def test_prices_come_from_the_list_or_from_the_user():
    assert scenario(price=2.5).price.usd_per_device_hour == 2.5
    assert scenario().price.usd_per_device_hour > 0
    assert assumption(scenario(), "price (on-demand)").origin == "catalog"
    assert scenario(clouds=("aws",), price_kind="spot").settings.spot_provider == "aws"
    assert scenario().settings.spot_provider is None
    unknown = scenario(on="8xh800-sxm")
    assert unknown.price is None
    assert assumption(unknown, "price").value == "unknown"
    assert scenario(on="8xh800-sxm", price_kind="spot").settings.spot_provider == "", "taken back at any price"


def test_an_instance_type_is_paid_at_the_cloud_that_rents_it():
    for on in ("p4d.24xlarge", "2x p4d.24xlarge", "ml.p4d.24xlarge"):
        assert scenario(on=on).price.provider == "AWS"
    assert scenario(on="8xa100-40gb").price.provider != "AWS", "elsewhere they are cheaper"
    assert scenario(on="p4d.24xlarge", clouds=("denvr",)).price.provider == "Denvr"
    for on in ("Standard_ND96isr_H100_v5", "ND96isr_H100_v5"):
        azure = scenario(on=on)
        assert azure.price is None and "at Azure" in assumption(azure, "price").source


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "8xh10"}, r"unknown device .*did you mean"),
        ({"on": "0xh100-sxm"}, "not a number of devices"),
        ({"tokens": 0}, "^tokens: must be at least 1"),
        ({"sequence_tokens": -1}, "^sequence_tokens: must be at least 1"),
        (
            {"model": catalogue_model("gpt2"), "sequence_tokens": 1 << 20, "batch_tokens": 1 << 20},
            "exceeds the model's",
        ),
        ({"stack": "torchtitn"}, r"unknown software stack .*did you mean"),
        ({"scale_out": "400"}, "cannot read a rate"),
        ({"clouds": ("awz",)}, "unknown cloud"),
        ({"price": -1.0}, "a price is not below zero"),
        ({"rank": 0}, "^rank: must be at least 1"),
    ],
)
def test_bad_questions_are_refused_in_one_line(options, message):
    with pytest.raises(RecipeError, match=message):
        scenario(**options)


def test_stages_that_waste_much_are_allowed_and_said():
    """32 layers on 5 ranks: the slowest has 7, and 3 of 35 turns are idle."""
    note = assumption(scenario(on="5xh100-sxm", layout={"pp": 5}), "idle share of uneven stages")
    assert note.value == pytest.approx(3 / 35)
    assert "4 or 8" in note.source
    for layout in ({}, {"pp": 4}, {"pp": 33}):
        assert not any("uneven" in entry.name for entry in scenario(layout=layout).assumptions)


def test_states_that_are_asked_for_are_no_default():
    assert assumption(scenario(), "how trained weights are kept").origin == "default"
    asked = scenario(states="pure")
    assert asked.run.workload.states == "pure"
    assert [each.origin for each in asked.assumptions if each.key == "states"] == ["given"]


def test_the_printed_deviation_is_that_of_the_range():
    asked = scenario()
    factor = math.exp(asked.source.spread(asked.run))
    assert f"a factor of {factor:.2f} " in assumption(asked, "software").source


def test_adapters_are_in_16_bits_where_all_of_it_is_asked_in_them():
    asked = Question(model=catalogue_model("llama3-8b"), on="h100-sxm", method="lora", rank=256, packing="on")
    plain, pure = (planned(scenario_of(each)).plan.estimate for each in (asked, replace(asked, states="pure")))
    for name in ("gradients", "optimizer"):
        assert getattr(pure.memory, name) == pytest.approx(getattr(plain.memory, name) / 2)
    kept = [each.needs.checkpoint_bytes for each in (plain, pure) if each.needs is not None]
    assert kept[1] == pytest.approx(kept[0] / 2)
