"""What a plan offers to type next is typed, and does what it says."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from fixtures.planned_recipe import TEXT
from trainwright.cli import main as cli

CHAT = (
    json.dumps({"messages": [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so " * 400}]})
    + "\n"
)
MODEL = ["plan", "--model", "llama3-8b", "--tokens", "10B"]


def following(capsys, *asked, code=0):
    """The words of the command that is offered, its comment left out; none where none is."""
    assert cli.main([*asked]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    return shlex.split(lines[0].removeprefix("next: "), comments=True) if lines else []


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a recipe.yaml").write_text(TEXT)
    return tmp_path


def test_a_model_that_fits_leads_to_its_recipe_and_the_recipe_to_its_run(capsys, here):
    words = following(capsys, *MODEL, "--on", "2x8xh100-sxm", "--cloud", "aws")
    assert words[:2] == ["trainwright", "plan"] and words[-2:] == ["--write-recipe", "llama3-8b.yaml"]
    run = following(capsys, *words[1:])
    assert run[:3] == ["trainwright", "run", "llama3-8b.yaml"]
    assert run[3:7] == ["--nodes", "2", "--node-rank", "0"] and run[7] == "--rendezvous"
    plans = []
    for asked in ([*MODEL, "--on", "2x8xh100-sxm"], ["plan", "llama3-8b.yaml", "--on", "2x8xh100-sxm"]):
        assert cli.main([*asked, "--json"]) == 0
        plans.append(json.loads(capsys.readouterr().out)["plan"])
    told, read = plans
    assert read["parallel"] == told["parallel"] and sum(read["parameters"].values()) == 8_030_261_248
    assert read["workload"]["steps"] == told["workload"]["steps"]
    # What it trains on is not there, and is named.
    assert cli.main(["config", "validate", "llama3-8b.yaml"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "data.sources.0.paths.0: no such file or directory (seen corpus.jsonl)" in line
    assert cli.main(words[1:]) == 2
    assert "--write-recipe: this file is there already" in capsys.readouterr().err


def test_a_recipe_in_json_says_what_the_one_in_yaml_says(capsys, here):
    for name in ("same.yaml", "same.json"):
        assert cli.main([*MODEL, "--on", "8xh100-sxm", "--write-recipe", name]) == 0
    assert isinstance(json.loads(Path("same.json").read_text()), dict)
    recipes = []
    for name in ("same.yaml", "same.json"):
        capsys.readouterr()
        assert cli.main(["config", "show", name, "--json"]) == 0
        recipes.append(json.loads(capsys.readouterr().out)["recipe"])
    assert recipes[0] == recipes[1]


def test_a_name_with_a_dot_is_the_recipes_whole_name(capsys, here):
    words = following(capsys, "plan", "--model", "tinyllama-1.1b", "--tokens", "10B", "--on", "8xh100-sxm")
    assert words[-1] == "tinyllama-1.1b.yaml"
    following(capsys, *words[1:])
    assert cli.main(["config", "show", "tinyllama-1.1b.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"]["name"] == "tinyllama-1.1b"


def test_a_recipe_elsewhere_leads_to_its_run_as_planned(capsys, here):
    asked = ["plan", "a recipe.yaml", "--on", "8xh100-sxm", "--workspace", "there"]
    words = following(capsys, *asked)
    assert words[:3] == ["trainwright", "run", "a recipe.yaml"] and words[-2:] == ["--workspace", "there"]
    assert cli.main([*asked, "--json"]) == 0
    parallel = json.loads(capsys.readouterr().out)["plan"]["parallel"]
    assert f"train.exec.layout.dp_shard={parallel['dp_shard']}" in words or parallel["dp_shard"] == 1
    assert cli.main(["config", "show", *words[2:-2], "--json"]) == 0
    layout = json.loads(capsys.readouterr().out)["recipe"]["train"]["exec"]["layout"]
    assert all(layout[name] == parallel[name] for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep"))


def test_what_other_software_trains_leads_to_what_to_train_on_and_then_to_the_plan_as_a_file(capsys):
    asked = ["plan", "--model", "llama3-8b", "--method", "qlora", "--on", "rtx-4090"]
    assert following(capsys, *asked)[:4] == ["trainwright", "recommend", "--model", "llama3-8b"]
    bought = following(capsys, *asked, "--price", "0.4")
    assert bought[:2] == ["trainwright", "plan"] and bought[-3:] == ["--json", ">", "plan.json"]
    assert cli.main(bought[1:-2]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["estimate"]["fits"]


def test_what_may_not_fit_names_the_command_of_a_plan_that_surely_does(capsys):
    assert cli.main(["plan", "--model", "llama3-8b", "--method", "lora", "--on", "rtx-4090"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("uncertain")
    (line,) = [line for line in lines if line.startswith("surely fits with ")]
    name, _, command = line.partition(" x the device-time: ")
    assert name.startswith("surely fits with QLoRA, 1.1")
    assert cli.main(shlex.split(command)[1:]) == 0
    surely = capsys.readouterr().out
    assert surely.startswith("fits: ") and "surely fits with" not in surely


def test_what_would_make_a_run_fit_says_what_to_type(capsys):
    asked = ["plan", "--model", "llama3-70b", "--on", "8xh100-sxm", "--tokens", "100B"]
    assert cli.main(asked) == 1
    lines = capsys.readouterr().out.splitlines()
    (first,) = [place for place, line in enumerate(lines) if line.startswith("would make it fit")]
    place, rows = lines[first].index("asked by"), lines[first + 1 : lines.index("", first)]
    assert len(rows) > 5
    for row in rows:
        options = shlex.split(row[place:])
        kept = asked if "--on" not in options else [*asked[:3], *asked[5:]]
        assert cli.main([*kept, *options]) == 0, row
        told = capsys.readouterr().out.splitlines()[0]
        assert told.startswith("fits") != ("uncertain" in row), (row, told)


def test_images_that_devices_do_not_divide_name_the_command_of_a_batch_that_they_do(capsys):
    asked = ["plan", "--model", "vit-b-16", "--on", "7xa100-sxm-80gb", "--batch", "1024"]
    assert cli.main(asked) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("faster with ")]
    told, _, command = line.partition(" x the device-time: ")
    assert told.startswith("faster with batches of 1,008 images and dp_replicate 7, 0.7")
    assert shlex.split(command)[1:] == [*asked[:3], "--batch", "1008", *asked[3:5]]
    assert cli.main([*asked, "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["fields"] == {"batch_tokens": str(1008 * 197)} and change["best"]["parallel"]["dp_replicate"] == 7


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--model", "mixtral-8x7b", "--on", "8x8xh100"), "no recipe says what was planned"),
        (("a recipe.yaml", "--on", "8xh100"), "what is planned is a recipe already"),
        (("--model", "llama3-8b", "--on", "8xh100", "--sweep", "nodes=1,2"), "a sweep is many plans"),
    ],
)
def test_a_recipe_that_cannot_be_written_is_refused_in_one_line(capsys, here, asked, message):
    assert cli.main(["plan", *asked, "--write-recipe", "new.yaml"]) == 2
    error = capsys.readouterr().err
    assert message in error and not (here / "new.yaml").exists()


def test_a_recipe_with_another_ending_is_refused(capsys, here):
    assert cli.main([*MODEL, "--on", "8xh100-sxm", "--write-recipe", "new.txt"]) == 2
    assert (
        "--write-recipe: a recipe has another ending (seen new.txt, expected .yaml or .json)" in capsys.readouterr().err
    )
    assert not (here / "new.txt").exists()


def test_a_folder_that_is_not_there_is_the_machines_fault(capsys, here):
    assert cli.main([*MODEL, "--on", "8xh100-sxm", "--write-recipe", "no/new.yaml"]) == 3
    assert "cannot write the recipe" in capsys.readouterr().err


def test_several_machines_say_what_joins_them(capsys):
    assert cli.main([*MODEL, "--on", "2x8xh100-sxm", "--cloud", "gcp"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("between h100-sxm machines: ")]
    assert "3,200 Gbit/s a machine" in line and "the cloud states 1,000 Gbit/s between machines" in line
    assert cli.main([*MODEL, "--on", "2x8xh100-sxm", "--cloud", "gcp", "--scale-out", "100Gb/s"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("network, a device's share: ")]
    assert "12.5 GB/s each way (given" in line
    assert cli.main([*MODEL, "--on", "64xtpu-v5p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [each for each in lines if each.startswith("link between all devices: ")]
    assert "ici" in line and not any("between tpu-v5p machines" in each for each in lines)


def test_a_recipe_that_is_not_trained_there_as_planned_leads_to_what_to_train_it_on(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.jsonl").write_text(CHAT * 40)
    assert cli.main(["init", "chat-lora", "--model", "llama3-8b", "--data", "chats.jsonl"]) == 0
    capsys.readouterr()
    words = following(capsys, "plan", "finetune.yaml", "--on", "8xh100-sxm")
    assert words == ["trainwright", "recommend", "--model", "finetune.yaml"]
    assert cli.main(words[1:]) == 0


def test_a_change_of_a_recipes_adapters_is_one_of_its_keys(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.jsonl").write_text(CHAT * 40)
    assert cli.main(["init", "chat-lora", "--model", "llama3-8b", "--data", "chats.jsonl"]) == 0
    capsys.readouterr()
    sizes = ("train.sequence_tokens=4096", "train.batch_tokens=8192", "train.recompute=full")
    method = ("train.method.frozen=nf4", "train.method.rank=1024")
    words = following(capsys, "plan", "finetune.yaml", *sizes, *method, "--on", "rtx-4090", code=1)
    assert "train.method.rank=128" in words
    assert cli.main(words[1:]) == 0
    assert capsys.readouterr().out.startswith(("fits", "probably fits", "uncertain"))


def test_what_no_change_makes_fit_leads_to_other_devices(capsys):
    asked = ["--model", "mixtral-8x7b", "--method", "qlora", "--stack", "unsloth"]
    words = following(capsys, "plan", *asked, "--on", "2xrtx-4090", code=1)
    assert words == ["trainwright", "recommend", *asked]
    assert cli.main(words[1:]) == 0


@pytest.mark.parametrize("device", ["rtx-4090", "a10g"])
def test_what_surely_fits_on_more_devices_keeps_what_one_had_alone(capsys, device):
    asked = ["plan", "--model", "llama3-8b", "--method", "full", "--stack", "torchtune", "--on", device]
    assert cli.main(asked) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("surely fits with ")]
    words = shlex.split(line.partition("trainwright ")[2])
    assert "--update-in-backward" in words
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("fits: ")
