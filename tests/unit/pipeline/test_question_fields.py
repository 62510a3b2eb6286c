import math
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.pipeline.question_fields import QUESTION, SEARCH, read_fields
from trainwright.planner.plan.question import Question
from trainwright.spec.workload import OptimizerName


def test_texts_and_numbers_come_to_the_same_fields():
    written = {
        "tokens": "1.5T",
        "method": "lora",
        "rank": "8",
        "targets": "q_proj, experts",
        "layout": "tp=8,compile=true",
        "clouds": "aws, gcp",
        "price_kind": "on-demand",
    }
    typed = {"tokens": 1.5e12, "rank": np.int64(8), "clouds": ["aws", "gcp"]}
    typed |= {"targets": ["q_proj", "experts"], "layout": {"tp": 8, "compile": True}}
    assert read_fields(written) == read_fields(typed | {"method": "lora", "price_kind": "on_demand"})
    assert read_fields({"budget_usd": "$50k", "deadline_s": "2d"}, SEARCH) == {
        "budget_usd": 50e3,
        "deadline_s": 172_800,
    }


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"recompute": "none", "layout": "recompute=full"}, "recompute"),
        ({"rank": 8}, "rank"),
        ({"targets": "attention"}, "targets"),
        ({"targets": " , ", "method": "lora"}, "targets"),
        ({"rank": 8, "method": "full"}, "rank"),
        ({"examples": 100, "tokens": "1M"}, "examples"),
        *[({"epochs": number}, "epochs") for number in (0, -1, "-1", "inf", math.inf, "1e400", 1e12)],
        *[({"data_gib": number}, "data_gib") for number in (0, -1, "1e400", 1e300)],
        ({"examples": 10**16}, "examples"),
        ({"example_tokens": 10**9}, "example_tokens"),
        ({"tokens": "9" * 400}, "tokens"),
        ({"budget_usd": "9" * 400}, "budget_usd"),
        ({"have_years": "inf", "have": "8xa100-80gb", "have_bought_usd": 1}, "have_years"),
        ({"have": "8xa100-80gb", "have_bought_usd": 1, "have_usd_per_device_hour": 1}, "have_usd_per_device_hour"),
        *[({"flops_per_s": rate}, "flops_per_s") for rate in ("28", "1e30TFLOP/s")],
        ({"deadline_s": "1e99d"}, "deadline_s"),
        ({"rails": 10**9}, "rails"),
        ({"task": "translate"}, "task"),
        ({"have_usd_per_device_hour": 2}, "have_usd_per_device_hour"),
        ({"devices": "h100-sxm,h1000"}, "devices"),
        ({"clouds": "cloudy"}, "clouds"),
        ({"regions": ["eu", "mars"]}, "regions"),
    ],
)
def test_what_contradicts_or_is_unknown_is_refused_under_its_field(fields, field):
    with pytest.raises(RecipeError) as refusal:
        read_fields(fields, QUESTION | SEARCH)
    assert refusal.value.field == field


def test_what_agrees_is_taken():
    fields = {"recompute": "full", "layout": "recompute=full", "tokens": "4M", "batch_tokens": "4M"}
    assert read_fields(fields)["recompute"] == "full"


def test_what_is_none_is_left_open():
    assert read_fields(dict.fromkeys(QUESTION)) == {}


def test_every_reader_is_of_a_field_of_a_question():
    assert set(QUESTION) <= {field.name for field in fields(Question)}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tokens", [5], "tokens: cannot read a quantity"),
        ("tokens", 0, "tokens: must be at least 1"),
        ("rails", True, "rails: cannot read a quantity"),
        ("method", "dora", "method: unknown value .*expected one of full, lora, qlora"),
        ("clouds", ["aws", 3], "clouds: must be text"),
        ("clouds", " , ", "clouds: no name in this list"),
        ("regions", "us\nwest", "regions: a name that cannot be printed"),
        ("clouds", "aws,,gcp", "clouds: an empty name in this list"),
        ("price", "1e30", "price: more than an hour of anything costs .*at most 100,000 dollars"),
        ("price", "h100-sxm=2,NVIDIA H100 SXM=3", "price: two prices of one device .*expected one of h100-sxm"),
        ("expert_imbalance", "high", "expert_imbalance: must be a number"),
        ("optimzer", "adamw", "unknown option .*did you mean 'optimizer'"),
    ],
)
def test_an_error_names_its_field(field, value, message):
    with pytest.raises(RecipeError, match=message):
        read_fields({field: value})


@pytest.mark.parametrize(("field", "value"), [("tokens", "15Q"), ("sequence_tokens", "1e99"), ("batch_tokens", "1e16")])
def test_numbers_beyond_any_run_are_refused(field, value):
    with pytest.raises(RecipeError, match="more than any run has.*at most") as raised:
        read_fields({field: value})
    assert raised.value.field == field
    assert read_fields({"tokens": "1000T", "sequence_tokens": "100M"})


@pytest.mark.parametrize("written", ["-1", "dear", "h100-sxm=-1"])
def test_a_price_that_cannot_be_read_says_whose_dollars_are_meant(written):
    with pytest.raises(RecipeError, match="no price .*expected dollars of a device and hour, such as 2.50"):
        read_fields({"price": written})


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_every_optimizer_is_taken_as_it_is_listed_and_in_capitals(name):
    for written in (name, name.upper(), name.replace("-", "_")):
        assert read_fields({"optimizer": written}, QUESTION)["optimizer"] == name


def test_an_optimizer_of_another_name_says_how_it_is_written():
    for name, fix in (
        ("paged_adamw_8bit", "write adamw, with `moments` int8, with `paged_moments`"),
        ("adamw_torch_fused", "write adamw"),
        ("lion", "plain-sgd)"),
    ):
        with pytest.raises(RecipeError) as refusal:
            read_fields({"optimizer": name}, QUESTION)
        assert str(refusal.value).endswith(fix)


def test_a_price_of_an_instance_is_shared_by_its_devices():
    assert read_fields({"price": "p5.48xlarge=98"})["price"] == {"h100-sxm": 98 / 8}
    assert read_fields({"price": "DGX H100=32,l4=0.7"})["price"] == {"h100-sxm": 4.0, "l4": 0.7}
    with pytest.raises(RecipeError, match="a price of how many devices"):
        read_fields({"price": "HGX H100=32"})
    with pytest.raises(RecipeError, match="a price of how many devices.*write what one device costs: h100-sxm=USD"):
        read_fields({"price": "gpu_8x_h100_sxm5=20"})
