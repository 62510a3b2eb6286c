"""Every number that a plan did not get from the user has an origin and a source, and appears only where it matters."""

import math
from dataclasses import replace

import pytest

from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.core.units import format_seconds
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, NEVER_RUN_KEY
from trainwright.hardware.catalogue.efficiency import read_efficiency
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.machine.processor_peak import CORE_BYTES_PER_S
from trainwright.hardware.prices.price_list import price_of
from trainwright.planner.cost.serving import estimate_inference
from trainwright.planner.cost.serving_memory import Serving
from trainwright.planner.explain.swing import largest
from trainwright.planner.plan.assumptions import RANK_HOST_BYTES, recommended
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.rates.catalogue import PRIOR_ROWS
from trainwright.spec.plan import INTERVAL, Assumption
from trainwright.testing.machine import fake_machine

DENSE = Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", tokens=10**10, price=2.0)
MIXTURE = Question(
    model=catalogue_model("mixtral-8x7b"), on="4x8xh100-sxm", tokens=10**10, price=2.0, layout=parse_layout("ep=8")
)


def noted(question):
    made = planned(scenario_of(question))
    return {each.name: each for each in made.plan.estimate.assumptions}


@pytest.mark.parametrize("question", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_every_assumption_has_an_origin_and_a_source(question):
    for name, each in noted(question).items():
        assert each.origin in ("given", "catalog", "default", "probed", "ledger"), name
        assert each.source or each.origin == "given", name


def test_mixtures_say_how_full_the_fullest_rank_is_and_dense_models_do_not():
    dense, mixed = noted(DENSE), noted(MIXTURE)
    assert not {"load of the fullest rank of experts", "tokens to experts"} & set(dense)
    assert mixed["load of the fullest rank of experts"].value >= 1
    made = noted(replace(MIXTURE, expert_imbalance=1.5))["load of the fullest rank of experts"]
    assert (made.value, made.origin) == (1.5, "given")


@pytest.mark.parametrize(("on", "title"), [("8xascend-910b2", "Ascend NPU"), ("8xh100-sxm", "CUDA device")])
def test_a_plan_for_this_trainer_says_on_which_devices_nobody_has_run_it(on, title):
    """Their record names no result file; a processor's does; what others have run of their own says nothing here."""
    ours, theirs = (replace(DENSE, on=on, price=None, stack=name) for name in ("trainwright", "deepspeed"))
    line = noted(ours)[f"training on {title}s"]
    assert (line.value, line.key) == (NEVER_RUN, NEVER_RUN_KEY)
    assert all(each.key != NEVER_RUN_KEY for each in noted(theirs).values())
    on_processors = replace(ours, model=catalogue_model("gpt2-124m"), on="xeon-8480plus")
    assert all(each.key != NEVER_RUN_KEY for each in noted(on_processors).values())


def test_devices_whose_trainings_nobody_published_say_so_and_have_a_wider_range():
    """A processor's peak says how it comes about; its range is at least as wide as the doubt of its generation."""
    asked = replace(DENSE, model=catalogue_model("gpt2-124m"), on="xeon-8480plus", price=None)
    notes = noted(asked)
    assert "56 cores x 2 GHz x 1024" in notes["dense bf16 peak"].source
    assert notes["measured runs on xeon-8480plus and its like"].source.startswith("never measured: the range is wider")
    assert any(each.key == "measured" and each.value > 100 for each in noted(DENSE).values())
    here, there = (planned(scenario_of(each)).plan.estimate for each in (asked, replace(asked, on="h100-sxm")))
    wide, usual = (math.log(each.seconds.high / each.seconds.mid) for each in (here, there))
    general = read_efficiency()
    generation, untuned = general.doubt["generation"], general.doubt["untuned"]
    # Of an H100 others' runs tell: what is assumed of a generation is worth eight of them.
    known = generation**2 * PRIOR_ROWS / (PRIOR_ROWS + general.rows["hopper"]) + untuned**2
    assert math.isclose(wide**2 - usual**2, INTERVAL**2 * (generation**2 - known), rel_tol=0.05)


MEASURED = {"xeon-8480plus": 688.7, "epyc-9654": 359.5}
"""Tokens a second of GPT-2 124M in bf16, 1,024 a step, on two cores of a Xeon with AMX and of an EPYC with Zen 4 cores:
benchmarks/results/train_cpu-2026-11-20.json and docs/lab/log.md."""


@pytest.mark.parametrize("name", MEASURED)
def test_two_cores_of_a_processor_train_as_fast_as_was_measured_within_the_range(name):
    """No measurement of a processor is in the fit. Two cores read memory at 6 to 25 GB/s each (processor_peak)."""
    machines = cluster(name)
    part = 2 / machines.device.sm_count
    cores = replace(
        machines.device,
        flops_per_s={dtype: part * rate for dtype, rate in machines.device.flops_per_s.items()},
        bytes_per_s=2 * math.sqrt(math.prod(CORE_BYTES_PER_S)),
    )
    scenario = scenario_of(
        Question(
            model=catalogue_model("gpt2-124m"),
            on=name,
            stack="trainwright",
            tokens=10**6,
            batch_tokens=1024,
            layout=parse_layout("micro_batch=1"),
        )
    )
    few = replace(scenario.run.cluster, node=replace(scenario.run.cluster.node, device=cores))
    estimate = planned(replace(scenario, run=replace(scenario.run, cluster=few))).plan.estimate
    measured, ratio = MEASURED[name], estimate.seconds.high / estimate.seconds.mid
    assert estimate.tokens_per_s / ratio < measured < estimate.tokens_per_s * ratio


def test_drives_are_assumed_where_states_live_on_them():
    assert "NVMe of a node" not in noted(DENSE)
    moved = noted(replace(DENSE, layout=parse_layout("offload=optimizer-nvme,dp_shard=8")))
    assert "reads" in moved["NVMe of a node"].value


def test_spot_nodes_are_taken_back():
    assert "a spot node until it is taken back" not in noted(DENSE)
    assert noted(DENSE)["host memory of a rank"].value == RANK_HOST_BYTES / 1e9


MANY = Question(model=catalogue_model("llama3-8b"), on="128x8xh100-sxm", tokens=10**10, clouds=("nebius",))


def test_a_plan_says_for_how_long_devices_are_paid_where_that_is_longer_than_the_run():
    """More than 512 on demand are a contract of 30 days; a price that is given is no cloud's."""
    made = planned(scenario_of(MANY)).plan
    paid = {each.key: each for each in made.estimate.assumptions}["billing"]
    hourly = price_of(
        "h100-sxm", "on_demand", usd=None, clouds=("nebius",), machines=cluster(MANY.on)
    ).usd_per_device_hour
    assert made.estimate.usd.mid == pytest.approx(30 * 24 * 1024 * hourly)
    assert paid.value == f"30 days of {format_seconds(made.estimate.seconds.mid)}" and "512" in paid.source
    for other in (replace(MANY, price=2.0), replace(MANY, on="8xh100-sxm"), replace(MANY, tokens=10**14)):
        estimate = planned(scenario_of(other)).plan.estimate
        assert "billing" not in {each.key for each in estimate.assumptions}
        cheapest = price_of("h100-sxm", "on_demand", usd=other.price, clouds=other.clouds, machines=cluster("8xh100"))
        own = estimate.needs.device_hours * cheapest.usd_per_device_hour
        assert estimate.usd.mid == pytest.approx(own, rel=0.01)


def test_a_plan_on_more_spot_devices_than_are_to_be_had_says_so_and_counts_no_contract():
    made = planned(scenario_of(replace(MANY, price_kind="spot"))).plan.estimate
    keys = {each.key: each for each in made.assumptions}
    assert keys["availability"].value == "256 of 1,024" and "billing" not in keys
    begun_minute = 1024 / 60 * keys["price"].value  # Nebius bills by the minute
    assert 0 <= made.usd.mid - made.needs.device_hours * keys["price"].value <= begun_minute
    assert "availability" not in noted_keys(replace(MANY, on="32x8xh100-sxm", price_kind="spot"))


def test_a_long_run_on_more_devices_than_are_to_be_had_at_once_says_so():
    """A contract of 30 days is none too long for it, and still nobody has 16,384 devices at the price of eight."""
    long = replace(MANY, tokens=10**14)
    made = planned(scenario_of(long)).plan
    assert made.estimate.seconds.mid > 31 * 86400
    (note,) = [each for each in made.estimate.assumptions if each.key == "availability"]
    assert note.value == "512 of 1,024" and "by a contract alone, 30 days at least" in note.source
    assert largest(made)[0].assumption == note and largest(made)[0].factor == math.inf
    assert "availability" not in noted_keys(MANY), "what is paid for says it there"
    for other in (replace(long, on="64x8xh100-sxm"), replace(long, price=2.0)):
        assert "availability" not in noted_keys(other)


def noted_keys(question):
    return {each.key for each in planned(scenario_of(question)).plan.estimate.assumptions}


def documents(tmp_path):
    """Assumptions by the answer that rests on them: of clusters, of this machine, of a search and of serving."""
    spot = replace(DENSE, price=None, price_kind="spot")
    images = replace(DENSE, model=catalogue_model("resnet-50"), price=None)
    asked = {"dense": DENSE, "mixture": MIXTURE, "spot": spot, "images": images}
    asked |= {"contract": MANY, "too many": replace(MANY, price_kind="spot")}
    answers = {
        f"plan of {name}": planned(scenario_of(question)).plan.estimate.assumptions for name, question in asked.items()
    }
    for machine in (fake_machine(), replace(fake_machine(), probes=None)):
        made = plan_of(planned_recipe(tmp_path, "train.exec.threads=1", "train.exec.compile=true"), machine)
        answers[f"local plan, probed: {machine.probes is not None}"] = made.estimate.assumptions
    answers["recommendation"] = tuple(recommended(scenario_of(replace(DENSE, tokens=None))))
    price = price_of("h100-sxm", "on_demand", usd=None, clouds=None)
    serving = Serving(prompt_tokens=512, new_tokens=512, batch=1, tp=1, weights="bf16")
    answers["inference"] = estimate_inference(DENSE.model, serving, cluster("h100-sxm"), price=price).assumptions
    return answers


UNKNOWN = "unknown"
"""Stands for a number that nobody knows, without a unit."""


def test_a_key_is_one_quantity_in_one_unit_wherever_it_is_said(tmp_path):
    ways = {}
    for document, entries in documents(tmp_path).items():
        keys = [each.key for each in entries]
        assert all(keys) and len(keys) == len(set(keys)), document
        for each in entries:
            if each.value != UNKNOWN:
                unit = "tokens" if each.unit == "images" else each.unit  # a model's own unit of work
                ways.setdefault(each.key, {}).setdefault((unit, isinstance(each.value, str)), []).append(document)
    assert {"bandwidth", "device_failures", "price", "spot", "products_bf16", "spot_aws"} <= ways.keys()
    assert not {key: each for key, each in ways.items() if len(each) > 1}


def test_a_failure_is_the_same_number_with_the_same_source_in_a_plan_and_in_a_recommendation():
    plan = {each.key: each for each in planned(scenario_of(DENSE)).plan.estimate.assumptions}
    search = {each.key: each for each in recommended(scenario_of(DENSE))}
    assert plan["device_failures"] == search["device_failures"]
    assert search["spot_gcp"].value == 24 and search["spot_aws"].value == 4430


def test_an_assumption_without_a_key_cannot_be_made():
    with pytest.raises(TypeError, match="key"):
        Assumption("memory of a device", 80.0, "GB", "catalog")


def test_a_plan_of_adapters_says_what_ranks_share_and_why():
    """With adapters on attention alone the whole model has room on each rank, and on all layers none: less memory."""
    asked = Question(
        model=catalogue_model("llama3-8b"), on="4xrtx-5090", method="lora", stack="axolotl", packing="on", price=1.0
    )
    few, all_linear = (planned(scenario_of(replace(asked, targets=(each,)))) for each in ("attention", "all-linear"))
    assert few.plan.estimate.memory.total_bytes > all_linear.plan.estimate.memory.total_bytes
    whole, shared = (
        next(each for each in made.plan.estimate.assumptions if each.key == "sharing") for made in (few, all_linear)
    )
    assert (whole.value, shared.value) == ("nothing", "ZeRO-3, 4 ranks")
    assert "; dp_replicate 4; micro batch 1, recompute full: 27.9% faster, but 20.7 GiB may not fit" in shared.source
    assert "fix `zero_stage` in `layout`" in shared.source
    fixed = replace(asked, targets=("attention",), layout=parse_layout("zero_stage=3,dp_shard=4"))
    assert "what ranks share" not in noted(fixed)
    assert "what ranks share" not in noted(replace(asked, on="a100-sxm-80gb"))  # one rank
    assert "what ranks share" not in noted(DENSE)
