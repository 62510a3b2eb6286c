from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from fixtures.recommend import SMALL, printed
from trainwright.cli.main import main
from trainwright.cli.output import Output
from trainwright.cli.streams import ReaderGone
from trainwright.core.errors import MachineError
from trainwright.hardware.catalogue.nodes import written
from trainwright.hardware.prices.regions import country_of

QUICKSTART = Path(__file__).parents[4] / "recipes" / "quickstart.yaml"


def test_a_deadline_is_met_by_the_cheapest_way(capsys):
    document = json.loads(printed(capsys, "--devices", "h100-sxm,a100-sxm-80gb", "--deadline", "2d", "--json"))
    assert document["schema"] == "trainwright.recommend/1"
    priced = [
        each for each in document["options"] if each["usd"] is not None and not (each["price"] or {}).get("doubt")
    ]
    assert all(option["seconds"] <= 2 * 86400 for option in document["options"])
    assert priced[0]["usd"] == min(option["usd"] for option in priced)
    assert document["goals"] == {"budget_usd": None, "deadline_s": 172800.0}


def test_goals_that_nothing_meets_exit_with_one(capsys):
    out = printed(capsys, "--devices", "h100-sxm", "--budget", "$5", "--deadline", "1h", code=1)
    assert out.startswith("nothing meets a budget of $5 and a deadline of 1 h 00 min; closest: ")


def test_what_one_has_is_compared_with_what_one_can_rent(capsys):
    asked = ("--have", "8xa100-80gb+8xh100-sxm", "--devices", "h100-sxm", "--cloud", "lambda")
    out = printed(capsys, *asked)
    assert " own " in out
    assert "use both, " in out and out.startswith("of one kind of device, cheapest")
    assert "way to use both" not in out and "way to use both" in printed(capsys, *asked, "--verbose")


def test_what_does_not_fit_is_told_what_would(capsys):
    out = printed(capsys, "--have", "2xa100-sxm-40gb", "--devices", "l4", "--most-devices", "1", code=1)
    assert out.startswith("it fits on none of these devices")
    assert "what would make it fit on 2xa100-sxm-40gb" in out
    assert "offload weights, gradients and the optimizer's state" in out
    assert "LoRA (adapters alone are trained)" in out


def test_a_batch_is_rounded_to_what_divides(capsys):
    document = json.loads(printed(capsys, "--devices", "h100-sxm", "--batch", "4M", "--sequence", "8192", "--json"))
    assert document["workload"]["batch_tokens"] == 512 * 8192
    assert document["workload"]["steps"] == -(-20_000_000_000 // (512 * 8192))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--budget", "5 EUR"], "--budget: unknown unit of money"),
        (["--region", "eu,mars"], "--region: unknown region (seen 'mars'"),
        (["--budget", "0"], "--budget: must be above zero"),
        (["--deadline", "soon"], "--deadline: cannot read a quantity"),
        (["--deadline", "14"], "--deadline: a time needs its unit"),
        (["--most-devices", "1e9"], "--most-devices: more than any cluster has"),
        (
            ["--have", "h100-sxm", "--have-price", "3", "--have-bought", "35k$"],
            "expected this or --have-bought, not both",
        ),
        (["--devices", " ,"], "--devices: no name in this list"),
        (["--cloud", ""], "--cloud: no name in this list"),
        (["--deadline=-3d"], "--deadline: cannot read a quantity"),
        (["--devices", "h1000"], "unknown device"),
        (["--cloud", "awss"], "did you mean aws"),
        (["--have", "8xnothing"], "--have: unknown device"),
        (["--price-kinds", "cheap"], "--price-kinds: unknown value"),
        (["--have-price", "dear"], "--have-price: cannot read a quantity"),
        (["--step", "chat"], "--step: a step is of a recipe"),
        (["--stack", "nothing"], "--stack: unknown software stack"),
        (["--price", "2.10"], "--price: a price of which device?"),
        (["--price", "h1000=2"], "--price: unknown device"),
        (["--price", "h100-sxm=0"], "--price: must be above zero"),
        (
            ["--price", "l4=0.7", "--devices", "h100-sxm"],
            "--price: a price of a device that is not looked at (seen l4)",
        ),
        (["--price", "xeon-8480plus=2"], "name it in --devices too"),
        (["--price", "l4=1", "--devices", "h100-sxm", "--have", "8xl4"], "what is there costs --have-price"),
        (["--have-bought", "30000"], "--have-bought: a price of devices that are not named"),
        (["--have", "8xh100", "--have-years", "3"], "--have-years: years of which price?"),
        (["--layout", "tp=x"], "--layout: not a number of ranks"),
        (["--recompute", "some"], "--recompute: unknown value"),
        (["--most-devices", "many"], "--most-devices: cannot read a quantity"),
    ],
)
def test_one_line_for_what_is_wrong(capsys, arguments, line):
    assert main([*SMALL, *arguments]) == 2
    assert line in capsys.readouterr().err


def test_the_next_command_plans_the_first_way(capsys):
    out = printed(capsys, "--devices", "h100-sxm", "--recompute", "full", "--optimizer", "muon", "--fused-loss")
    (line,) = [each for each in out.splitlines() if each.startswith("next: trainwright ")]
    words = line.split()[2:]
    assert words[0] == "plan" and {"--optimizer", "muon", "--fused-loss", "--recompute", "full"} <= set(words)
    cluster = out.splitlines()[0].partition(": ")[2].split()[0]
    assert main([*words, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert words[words.index("--on") + 1] == cluster and not cluster.startswith("1x")
    found = plan["cluster"]
    assert written(found["nodes"], found["node"]["devices"], found["node"]["device"]["name"]) == cluster


def test_a_given_price_stands_beside_what_it_buys_and_no_cloud_keeps_its_data(capsys):
    asked = ("--devices", "h100-sxm", "--price", "h100-sxm=1.25", "--verbose")
    out = printed(capsys, *asked)
    rows = [line.split() for line in out.splitlines() if "x8xh100-sxm" in line and " given " in line]
    assert rows and all("$1.25/h" in row for row in rows if "of" in row)
    assert "beside the rental" not in out and "nobody knows the date" not in out
    every = json.loads(printed(capsys, *asked, "--json"))["options"]
    assert {(each["price"]["usd_per_device_hour"], each["price"]["source"]) for each in every} == {(1.25, "given")}


WAYS = {
    "spot in the Union beside a given price": (
        *("recommend", "--model", "llama3-70b", "--tokens", "1T", "--price", "h100-sxm=1.0"),
        *("--region", "eu", "--price-kinds", "spot"),
    ),
    "given": (*SMALL, "--devices", "h100-sxm,a100-sxm-80gb", "--price", "h100-sxm=0.5"),
    "one cloud's reserved": (
        *SMALL,
        "--devices",
        "trainium1",
        "--cloud",
        "aws",
        "--price-kinds",
        "reserved",
        "--budget",
        "1B$",
    ),
    "own, for nothing": (*SMALL, "--have", "4xh100-sxm", "--devices", "l4"),
    "own, bought": (*SMALL, "--have", "6xh100-sxm", "--have-bought", "30000", "--devices", "l4"),
    "a part of a node on spot": (*SMALL, "--devices", "b200-sxm", "--price-kinds", "spot", "--most-devices", "2"),
    "of no known price": (*SMALL, "--devices", "b100", "--price-kinds", "spot", "--most-devices", "8"),
    "in time": (*SMALL, "--devices", "h100-sxm", "--batch", "4M", "--deadline", "2d"),
    "by examples": (
        *("recommend", "--model", "llama3-8b", "--examples", "20M", "--epochs", "2", "--devices", "h100-sxm"),
        *("--deadline", "2d"),
    ),
    "adapters": ("recommend", "--model", "llama3-8b", "--method", "lora", "--region", "us", "--devices", "h100-sxm"),
}


@pytest.mark.parametrize("asked", WAYS.values(), ids=WAYS)
def test_the_next_command_costs_and_takes_what_was_said(capsys, asked):
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    weighed = set(document["goals"].values()) == {None}
    first = next(iter(document["headlines"].values())) if weighed else document["options"][0]
    assert main([*asked]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("next: trainwright ")]
    assert main([*line.split()[2:], "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    usd, seconds = plan["estimate"]["usd"], plan["estimate"]["seconds"]
    # A plan plays a pipeline's schedule out event by event, where a search of thousands takes its closed form.
    close = 1e-9 if plan["parallel"]["pp"] == 1 else 0.03
    assert seconds["mid"] == pytest.approx(first["seconds"], rel=close)
    assert (None if usd is None else usd["mid"]) == (first["usd"] and pytest.approx(first["usd"], rel=close))
    assert plan["workload"]["steps"] * plan["workload"]["batch_tokens"] == first["tokens"] or "lora" in asked


def test_adapters_that_fit_no_node_are_not_said_to_fit_on_clusters_that_were_not_searched(capsys):
    asked = ["recommend", "--model", "llama3-405b", "--method", "lora", "--sequence", "8192", "--devices", "t4"]
    assert main(asked) == 1
    assert "no change makes it fit on 8xt4" in capsys.readouterr().out


def test_storage_and_egress_are_said_of_each_way_and_named_where_unknown(capsys):
    asked = ("--devices", "h100-sxm", "--cloud", "aws,vast", "--price-kinds", "on_demand", "--data-gib", "500")
    options = json.loads(printed(capsys, *asked, "--json"))["options"]
    of = {each["provider"]: each for each in options}
    assert of["AWS"]["storage_usd"] > 0 == of["AWS"]["egress_usd"] and of["Vast.ai"]["storage_usd"] is None
    out = printed(capsys, *asked, "--verbose")
    start = out.index("beside the rental")
    row = next(line for line in out[start:].splitlines() if "AWS" in line)
    assert row.split()[-2] == "$0" and "beside the rental" not in printed(capsys, *asked)


def test_where_data_may_lie_means_one_law_in_every_cloud(capsys):
    """The Union is its members alone: neither London's region nor Norway's, in whose names it stands."""
    members = {"cz", "de", "dk", "es", "fi", "fr", "ie", "it", "nl", "pl", "ro", "se"}
    document = json.loads(printed(capsys, "--devices", "h100-sxm,a100-sxm-80gb", "--region", "eu", "--json"))
    countries = {country_of(each["price"]["region"]) for each in document["options"]}
    assert countries and countries <= members


def test_bought_machines_cost_their_years_and_their_power(capsys):
    own = ("--have", "8xh100-sxm", "--devices", "l4", "--have-bought", "35064", "--kwh-price", "0.2", "--json")
    options = json.loads(printed(capsys, *own))["options"]
    option = next(each for each in options if each["provider"] == "own" and each["devices"] == 8)
    # 35,064 $ over four years are 1 $ an hour; 700 W, half as much again for the host and 15 % for the building.
    hourly = 1.0 + 0.7 * 1.5 * 1.15 * 0.2
    assert option["usd"] == pytest.approx(8 * option["seconds"] / 3600 * hourly)


def test_a_convolutional_network_is_laid_out_by_data_parallelism(capsys):
    assert main(["recommend", "--model", "resnet-50", "--devices", "h100-sxm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {option["devices"] for option in document["options"]} >= {8, 16, 32}
    for option in document["options"]:
        plan = option["parallel"]
        assert plan["tp"] == plan["pp"] == plan["cp"] == plan["ep"] == 1
        assert plan["dp_shard"] * plan["dp_replicate"] == option["devices"]


def test_a_recipe_names_its_model_and_run(capsys):
    assert main(["recommend", "--model", str(QUICKSTART), "--devices", "h100-sxm", "--json"]) == 0
    workload = json.loads(capsys.readouterr().out)["workload"]
    assert (workload["sequence_tokens"], workload["batch_tokens"], workload["optimizer"]) == (256, 2048, "muon")


def test_a_batch_suits_what_one_has(capsys):
    # Of 488 sequences, 24 devices can share 480.
    document = json.loads(printed(capsys, "--have", "3x8xa100-80gb", "--devices", "l4", "--batch", "4M", "--json"))
    assert document["workload"]["batch_tokens"] == 24 * 20 * 8192
    owned = [option for option in document["options"] if option["provider"] == "own"]
    assert max(option["devices"] for option in owned) == 24


def test_the_plan_of_a_row_is_the_row(capsys):
    document = json.loads(printed(capsys, "--devices", "mi300x", "--json"))
    row = next(option for option in document["options"] if option["devices"] == 64)
    assert main(["plan", *SMALL[1:], "--on", "8x8xmi300x", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["parallel"] == row["parallel"]
    assert plan["estimate"]["seconds"]["mid"] == pytest.approx(row["seconds"])
    assert plan["estimate"]["mfu"] == pytest.approx(row["mfu"])


def test_of_three_kinds_the_best_pair_is_named(capsys):
    document = json.loads(
        printed(capsys, "--have", "8xv100+8xa100-80gb+8xh100", "--devices", "l4", "--precision", "fp16", "--json")
    )
    used = {side["cluster"]["node"]["device"]["name"] for side in document["pool"]["ways"][0]["sides"]}
    assert used == {"a100-sxm-80gb", "h100-sxm"}


PLAN = ["plan", "--model", "llama3-8b", "--tokens", "100B", "--on", "8xh100-sxm"]


@pytest.mark.parametrize("asked", [SMALL, PLAN, [*PLAN, "--sweep", "micro_batch=1,2"]], ids=len)
def test_a_picture_is_drawn_before_anybody_can_stop_reading(asked, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.svg"

    def gone(self, text=""):
        raise ReaderGone

    monkeypatch.setattr(Output, "line", gone)
    assert main([*asked, "--draw", str(path)]) == 141
    assert path.stat().st_size


def test_devices_that_cost_nothing_are_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "own.svg"
    asked = ["recommend", "--model", "qwen3-14b", "--method", "lora", "--have", "8xascend-910b2", "--cloud", "alibaba"]
    assert main([*asked, "--draw", str(path)]) == 0
    assert "device-hours of the run" in path.read_text(encoding="utf-8")
    assert "8xascend-910b2" in capsys.readouterr().out


def test_a_picture_that_cannot_be_drawn_takes_no_answer_away(capsys, tmp_path, monkeypatch):
    def fails(*_args, **_kwargs):
        raise MachineError("no ink")

    monkeypatch.setattr("trainwright.render.plans.recommendation.draw", fails)
    assert main([*SMALL, "--draw", str(tmp_path / "front.svg")]) == 3
    out, err = capsys.readouterr()
    assert "next: trainwright plan" in out and "no ink" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [([], "--model: which model?"), (["tiny.yaml"], "trainwright recommend --model tiny.yaml")],
)
def test_a_model_is_asked_for_with_what_to_type(arguments, line, capsys):
    assert main(["recommend", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_a_vision_model_s_batch_is_of_images_in_the_answer_and_in_what_to_type_next(capsys):
    assert main(["recommend", "--model", "vit-b-16", "--batch", "4096", "--devices", "h100-sxm"]) == 0
    out = capsys.readouterr().out
    assert "115.3M images in 28,151 steps of 4,096 images" in out
    assert re.search(r"^next: trainwright plan --model vit-b-16 --batch 4096 ", out, re.MULTILINE)


@pytest.mark.parametrize("device", ["resnet-50", "vit-b-16"])
def test_rows_of_images_say_images_a_second_and_answers_their_price_in_epochs(device, capsys):
    asked = ["recommend", "--model", device, "--devices", "h100-sxm", "--most-devices", "512"]
    assert main([*asked, "--json"]) == 0
    fastest = json.loads(capsys.readouterr().out)["headlines"]["fastest"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "images/s" in out and "more for the same loss" in out
    size = 197 if device == "vit-b-16" else 1
    rate = fastest["batch_tokens"] / size / fastest["step_s"]
    assert fastest["tokens"] / size / rate < fastest["seconds"] < 1.2 * fastest["tokens"] / size / rate + 600


@pytest.mark.parametrize(
    "asked",
    [
        ["--model", "llama3-8b", "--method", "lora", "--examples", "50", "--devices", "a100-80gb"],
        ["--model", "bert-large", "--task", "classify", "--examples", "20", "--epochs", "1", "--devices", "a100-80gb"],
        ["--model", "resnet-50", "--examples", "100", "--epochs", "1", "--devices", "h100-sxm"],
        ["--model", "resnet-50", "--examples", "100", "--epochs", "1", "--devices", "l4", "--have", "5x8xh100-sxm"],
    ],
)
def test_a_run_of_less_than_the_usual_batch_is_answered_too(asked, capsys):
    assert main(["recommend", *asked]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("next: ")]
    assert main(shlex.split(line.removeprefix("next: "), comments=True)[1:]) == 0


def test_where_nothing_fits_changes_are_of_one_node_and_its_plan_is_next(capsys):
    asked = ["recommend", "--model", "llama3-8b", "--method", "full", "--stack", "unsloth", "--devices", "h100-sxm,l4"]
    assert main(asked) == 1
    out = capsys.readouterr().out
    (line,) = [each for each in out.splitlines() if each.startswith("next: trainwright plan")]
    assert "what would make it fit on 8xh100-sxm" in out
    assert main(shlex.split(line.removeprefix("next: "), comments=True)[1:]) == 1
    assert "would make it fit" in capsys.readouterr().out
