import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.finished import finished
from fixtures.planned_recipe import TEXT
from trainwright.cli import main as cli

QUICKSTART = Path(__file__).parents[4] / "recipes" / "quickstart.yaml"
ASKED = ["plan", "--model", "llama3-8b", "--tokens", "1T", "--on", "4x8xh100-sxm"]


def test_one_screen_has_the_verdict_the_memory_what_matters_most_and_what_to_type_next(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(ASKED) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("fits: ") and len(lines) <= 17
    assert any(line.startswith("steps alone ") and "overhead of long runs" in line for line in lines)
    assert any(line.startswith("memory |") for line in lines)
    start = next(place for place, line in enumerate(lines) if line.startswith("rests on most"))
    end = lines.index("", start)
    assert 1 <= end - start - 1 <= 3 and all(" x " in line for line in lines[start + 1 : end])
    (following,) = [line for line in lines if line.startswith("next: trainwright ")]
    assert cli.main([*following.split()[2:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["workload"]["steps"] > 0
    assert (tmp_path / "llama3-8b.yaml").exists()


def test_what_does_not_fit_names_the_command_that_does(capsys):
    assert cli.main(["plan", "--model", "llama3-8b", "--on", "rtx-4090"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (following,) = [line for line in lines if line.startswith("next: trainwright plan ")]
    assert "--method qlora" in following
    assert cli.main(following.split()[2:]) == 0
    assert capsys.readouterr().out.startswith("fits: ")


TIGHT = {
    "replicas": ("--model", "llama3-8b", "--on", "8xrtx-4090", "--layout", "dp_replicate=8"),
    "adapters on replicas": (
        *("--model", "llama3-70b", "--method", "qlora", "--layout", "dp_replicate=8", "--recompute", "none"),
        *("--sequence", "8192", "--on", "8xrtx-4090"),
    ),
    "software without QLoRA": ("--model", "llama3-70b", "--on", "h100-sxm", "--stack", "megatron-core"),
    "a recipe that recomputes nothing": (
        *(str(QUICKSTART), "model.layers=24", "model.width=1536", "model.heads=16", "model.ffn_width=4096"),
        *("model.context_tokens=8192", "train.sequence_tokens=8192", "train.batch_tokens=262144", "--on", "t4"),
    ),
}


@pytest.mark.parametrize("asked", TIGHT.values(), ids=TIGHT)
def test_the_next_command_makes_the_change_that_the_verdict_names_and_fits(asked, capsys):
    assert cli.main(["plan", *asked]) == 1
    lines = capsys.readouterr().out.splitlines()
    change = lines[0].partition("smallest change: ")[2]
    (following,) = [line for line in lines if line.startswith("next: trainwright plan ")]
    assert cli.main(following.split()[2:]) == 0
    out = capsys.readouterr().out
    assert not out.startswith("does not fit")
    name = change.removeprefix("layout auto: ").removeprefix("sequences of ")
    name = name.partition(" devices")[0].removesuffix(" tokens")
    by_switch = {"weights and states in 16 bits alone": "--states pure"}.get(name, "offload")
    assert name and (name in out or by_switch in following or (name.startswith("offload") and ", offload " in out))


def test_a_rate_that_is_given_stands_beside_the_truth(capsys):
    asked = ["plan", "--model", "gpt3-175b", "--tokens", "300B", "--on", "1xv100-sxm-32gb", "--rate", "28TFLOP/s"]
    assert cli.main([*asked, "--json"]) == 1
    at_rate = json.loads(capsys.readouterr().out)["at_rate"]
    # Brown et al., 2020, arXiv 2005.14165, table D.1: 3.14e23 FLOPs.
    assert at_rate["seconds"] == pytest.approx(3.14e23 / 28e12, rel=5e-3)
    assert cli.main(asked) == 1
    assert "at 28 TFLOP/s a device, if it held them: 356 years" in capsys.readouterr().out
    assert cli.main([*asked[:-1], "28 apples"]) == 2
    assert "--rate: no rate of a device" in capsys.readouterr().err


def test_a_run_that_outlives_its_machines_is_answered_and_said_to_be_no_way(capsys):
    asked = ["plan", "--model", "gpt3-175b", "--tokens", "300B", "--on"]
    assert cli.main([*asked, "1xv100", "--rate", "28TFLOP/s"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (said,) = [line for line in lines if line.startswith("not practical")]
    assert "4 years" in said and any("356 years" in line for line in lines)
    for where, long in (("1xv100", True), ("128x8xh100-sxm", False)):
        cli.main([*asked, where, "--json"])
        assert json.loads(capsys.readouterr().out)["outlives_machines"] is long
    cli.main([*asked, "128x8xh100-sxm"])
    assert "not practical" not in capsys.readouterr().out


def test_storage_and_egress_stand_beside_the_rental(capsys):
    asked = ["plan", "--model", "gpt2-124m", "--tokens", "1B", "--on", "8xh100-sxm"]
    lines = {}
    for cloud in ("aws", "vast"):
        assert cli.main([*asked, "--cloud", cloud, "--data-gib", "1000"]) == 0
        printed = capsys.readouterr().out.splitlines()
        (lines[cloud],) = [each for each in printed if each.startswith("beside the rental")]
    assert "at AWS: storage $" in lines["aws"] and "egress $0 (" in lines["aws"] and "without" not in lines["aws"]
    assert re.fullmatch(
        r"beside the rental at Vast\.ai: storage \(.* kept\) and egress \(.* out\), whose prices are unknown",
        lines["vast"],
    )
    assert cli.main([*asked, "--cloud", "aws", "--data-gib", "1000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    kept = document["keeping"]
    rental = document["plan"]["estimate"]["usd"]["mid"]
    assert kept["total_usd"] == pytest.approx(rental + kept["storage_usd"] + kept["egress_usd"])
    assert kept["kept"]["data_bytes"] == 1000 * 2**30
    assert {"kept", "kept_prices"} <= {each["key"] for each in document["plan"]["estimate"]["assumptions"]}
    assert cli.main([*asked, "--data-gib", "none"]) == 2
    assert "--data-gib: must be a number" in capsys.readouterr().err


def test_the_verdict_comes_first_and_everything_it_rests_on_after(capsys):
    assert cli.main([*ASKED, "--price", "2", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fits: ")
    assert "$" in out.splitlines()[0]
    for word in (
        "memory of a device",
        "backward",
        "MFU",
        "mostly",
        "host memory",
        "a checkpoint",
        "loader",
        "rests on",
        "not chosen",
        "interruptions",
        "kWh",
    ):
        assert word in out, word


def test_json_holds_the_whole_plan(capsys):
    assert cli.main([*ASKED, "--layout", "tp=8,recompute=full", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["parallel"]["tp"] == 8
    assert plan["workload"]["recompute"] == "full"
    assert plan["estimate"]["needs"]["checkpoint_bytes"] > 0
    assert {entry["origin"] for entry in plan["estimate"]["assumptions"]} >= {"catalog", "default"}


def test_what_does_not_fit_says_what_would_by_slowdown(capsys):
    assert cli.main(["plan", "--model", "llama3-70b", "--on", "8xa100-80gb"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("does not fit: needs ")
    assert "smallest change: " in out.splitlines()[0]
    rows = [line for line in out.splitlines() if " x the device-time" in line]
    # It would take years: adapters are what people run there.
    order = [("adapters alone" not in line, "uncertain" in line) for line in rows]
    assert rows and order == sorted(order)


def test_a_host_that_is_too_small_is_named(capsys):
    assert cli.main(["plan", "--model", "llama3-70b", "--on", "8xrtx-4090", "--layout", "offload=all"]) == 1
    assert "of a host's memory" in capsys.readouterr().out.splitlines()[0]


def test_a_formula_is_printed_with_its_numbers(capsys):
    assert cli.main([*ASKED, "--explain", "memory.weights"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("memory.weights = ") and lines[1] == "= b × n" and lines[2].startswith("= 4 bytes × ")
    assert cli.main([*ASKED, "--explain", "time.products", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)["explanation"]
    assert explained["value"] > 0 and explained["terms"]


def test_neither_torch_nor_pydantic_is_loaded(tmp_path):
    """Where no ledger of finished runs stands; one is read by pydantic."""
    code = (
        "import sys; from trainwright.cli.main import main; code = main(sys.argv[1:])\n"
        "sys.exit(9 if {'torch', 'pydantic', 'matplotlib'} & set(sys.modules) else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *ASKED], capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0


def test_a_plan_is_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    assert cli.main([*ASKED, "--draw", str(tmp_path / "p.svg")]) == 0
    assert (tmp_path / "p.svg").stat().st_size and (tmp_path / "p-step.svg").stat().st_size


def test_images_are_called_images(capsys):
    assert cli.main(["plan", "--model", "resnet-50", "--on", "8xa100-80gb", "--optimizer", "sgd"]) == 0
    out = capsys.readouterr().out
    assert "images/s" in out and "sequences of" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "4096"], "this is about serving"),
        (["--sweep", "nodes=1,2", "--explain", "mfu"], "a sweep is many plans"),
    ],
)
def test_words_without_a_use_are_refused(arguments, message, capsys):
    assert cli.main([*ASKED, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_finished_runs_on_the_device_are_learnt_from_unless_told_not_to(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(TEXT)
    arguments = ["plan", "r.yaml", "--on", "rtx-4090", "--json"]

    def estimate_of(*more):
        assert cli.main([*arguments, *more]) == 0
        estimate = json.loads(capsys.readouterr().out)["plan"]["estimate"]
        return estimate, {each["name"]: each for each in estimate["assumptions"]}

    before, _ = estimate_of()
    workspace = tmp_path / "runs" / "planned"
    workspace.mkdir(parents=True)
    changes = {"device": "NVIDIA GeForce RTX 4090"}
    (workspace / "ledger.jsonl").write_text(finished(tmp_path, slower=0.5, changes=changes) + "\n")
    after, assumptions = estimate_of()
    assert after["tokens_per_s"] != before["tokens_per_s"]
    assert after["seconds"]["high"] / after["seconds"]["low"] < before["seconds"]["high"] / before["seconds"]["low"]
    assert assumptions["measured runs"]["source"].startswith("calibrated by 1 run of the ledger, newest 2026-11-01; ")
    assert estimate_of("--calibrate", "none")[0] == before
    assert estimate_of("--stack", "megatron-core")[1].get("measured runs") is None


def test_a_price_may_be_given_by_device(capsys):
    def usd(*price):
        assert cli.main([*ASKED, *price, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["plan"]["estimate"]["usd"]["mid"]

    assert usd("--price", "h100-sxm=3,l4=0.7") == usd("--price", "3") != usd()
    assert cli.main([*ASKED, "--price", "l4=0.7"]) == 2
    assert "--price: no price of this device (seen l4, expected h100-sxm=USD)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["8xa100-80gb", "--price-kind", "spot"], "Verda 1A100.22V, at $0.45 the cheapest spot a100-sxm-80gb"),
        (
            ["8xh100", "--price-kind", "reserved"],
            "the lists have no believable reserved price of h100-sxm; trainwright",
        ),
        (["8xmi300x", "--cloud", "aws"], "the lists have no believable on-demand price of mi300x at AWS; "),
    ],
)
def test_the_second_line_says_why_no_price_is_known(capsys, asked, reason):
    assert cli.main(["plan", "--model", "llama3-8b", "--tokens", "1T", "--on", *asked]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("price unknown") and second.startswith(f"price unknown: {reason}")


@pytest.mark.parametrize("model", ["vit-b-16", "resnet-50"])
def test_a_vision_model_is_asked_and_answered_in_images(capsys, model):
    """Both have ImageNet's 115.3M images in as many steps, whatever an image is to them."""
    assert cli.main(["plan", "--model", model, "--on", "8xa100-sxm-40gb", "--batch", "4096"]) == 0
    out = capsys.readouterr().out
    assert "115.3M images in 28,151 steps of 4,096 on 8 a100-sxm-40gb" in out and " images/s" in out


def test_a_change_of_a_vision_model_s_batch_is_offered_in_images(capsys):
    asked = ["plan", "--model", "vit-b-16", "--on", "t4", "--batch", "8192", "--update-in-backward"]
    assert cli.main(asked) == 1
    out = capsys.readouterr().out
    offered = re.search(r"^next: .* --batch (\d+)", out, re.MULTILINE)
    assert offered is not None and 1 <= int(offered[1]) < 8192


def test_what_does_not_fit_says_how_long_it_would_take_with_memory_enough_and_in_what_layout(capsys):
    asked = ["plan", "--model", "llama3-70b", "--method", "full", "--on", "8xh100-sxm"]
    assert cli.main(asked) == 1
    lines = capsys.readouterr().out.splitlines()
    (said,) = [line for line in lines if line.startswith("with memory enough: ")]
    assert said.endswith(", dp_shard 8, ZeRO-2")
    assert any(line.startswith("layout (chosen): cp 8; ") for line in lines), "what needs least"
    cli.main([*asked, "--json"])
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["roomy"]["estimate"]["seconds"]["mid"] < plan["estimate"]["seconds"]["mid"]
    assert plan["roomy"]["parallel"]["dp_shard"] == 8 and not plan["roomy"]["estimate"]["fits"]
    cli.main(["plan", "--model", "llama3-8b", "--method", "lora", "--on", "h100-sxm", "--json"])
    assert json.loads(capsys.readouterr().out)["plan"]["roomy"] is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            ["llama3-8b", "--tokens", "100B", "--batch", "256M"],
            "a batch of 268.4M tokens is far beyond the critical",
        ),
        (["llama3-8b", "--tokens", "100B", "--batch", "256M", "--method", "full"], ""),
        (["llama3-8b", "--tokens", "100B"], ""),
        (["resnet-50", "--batch", "65536"], "a batch of 65,536 images is far beyond the critical one of 9,450: "),
    ],
)
def test_a_batch_far_beyond_the_critical_one_is_remarked_of_training_from_the_start(capsys, fields, said):
    cli.main(["plan", "--on", "64x8xh100-sxm", "--model", *fields])
    lines = [line for line in capsys.readouterr().out.splitlines() if "critical" in line and line.startswith("a batch")]
    assert len(lines) == bool(said) and all(line.startswith(said) for line in lines)
