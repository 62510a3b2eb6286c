"""Python and the command line ask the same, and get equal answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright import api
from trainwright.cli import main as cli
from trainwright.cli.options import OPTIONS
from trainwright.cli.shell.surface import surfaces
from trainwright.core.errors import DataError, RecipeError
from trainwright.pipeline.question_fields import OF_RUN, QUESTION, SEARCH
from trainwright.render.document import document

RECIPE = """\
name: stepped
model: {layers: 2, width: 64, heads: 4, context_tokens: 256}
data: {sources: [{kind: python-stdlib}]}
train: {sequence_tokens: 256, batch_tokens: 65536, duration: 100 steps}
stages:
  - {name: base, stage: train, train: {duration: 1000 steps}}
"""
TUNED = "  - {name: tuned, stage: train, from: base, train: {duration: 30 steps, batch_tokens: 32768}}\n"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes a recipe with one step or two into the working directory, and returns it."""
    monkeypatch.chdir(tmp_path)

    def written(more=""):
        (tmp_path / "r.yaml").write_text(RECIPE + more, encoding="utf-8")
        return api.load_recipe("r.yaml")

    return written


def printed(capsys, *arguments, codes=(0,)):
    """What the command answers in JSON."""
    assert cli.main([*arguments, "--json"]) in codes
    return json.loads(capsys.readouterr().out)


def as_printed(payload):
    """What Python returned, as the command would print it."""
    return json.loads(document("any", payload, version=1))


def options_of(command):
    (surface,) = (each for each in surfaces() if each.words == (command,))
    return {flag for option in surface.options for flag in option.flags if flag.startswith("--")}


@pytest.mark.parametrize(("command", "fields"), [("plan", QUESTION), ("recommend", OF_RUN | SEARCH)])
def test_every_field_has_its_option(command, fields):
    assert {OPTIONS[field] for field in fields} <= options_of(command)


def test_an_option_of_both_commands_is_a_field_of_a_run():
    both = options_of("plan") & options_of("recommend")
    others = {
        "--model",
        "--step",
        "--workspace",
        "--draw",
        "--cloud",
        "--budget",
        "--price",
        "--region",
        "--no-activation-offload",
        "--no-fused-loss",
        "--no-paged-moments",
        "--no-update-in-backward",
    }
    assert both == {OPTIONS[field] for field in OF_RUN} | others | (options_of("version") & both)


RUNS = [
    ("llama3-8b", {"tokens": "20B", "moments": "int8", "fused_loss": True}, "--tokens 20B --moments int8 --fused-loss"),
    ("llama3-8b", {"method": "full", "update_in_backward": True}, "--method full --update-in-backward"),
    ("llama3-8b", {"method": "lora", "rank": 64}, "--method lora --rank 64"),
    ("qwen3-30b-a3b", {"method": "lora", "targets": "attention,experts"}, "--method lora --targets attention,experts"),
    (
        "llama3-8b",
        {"method": "full", "paged_moments": True, "activation_offload": True, "packing": "off"},
        "--method full --paged-moments --activation-offload --packing off",
    ),
    (
        "mixtral-8x7b",
        {"expert_imbalance": 1.5, "further_layers": 1, "batch_tokens": "4M", "precision": "fp16"},
        "--expert-imbalance 1.5 --mtp 1 --batch 4M --precision fp16",
    ),
]
BOUNDS = {
    "devices": ["h100-sxm"],
    "price_kinds": ["spot", "on_demand"],
    "most_devices": 64,
    "have": "8xa100-80gb",
    "have_usd_per_device_hour": 1.25,
    "deadline_s": 90 * 86400,
}
BOUNDED = "--devices h100-sxm --price-kinds spot,on-demand --most-devices 64 --have 8xa100-80gb --have-price $1.25"


@pytest.mark.parametrize(("model", "options", "written"), RUNS)
def test_a_recommendation_is_that_of_the_command(capsys, model, options, written):
    text = f"recommend --model {model} {written} {BOUNDED} --deadline 90d"
    answer = printed(capsys, *text.split(), codes=(0, 1))
    asked = api.recommend(model, **options, **BOUNDS)
    assert answer["options"] or answer["closest"]
    for part in ("options", "front", "closest", "refused"):
        assert as_printed({part: getattr(asked, part)})[part] == answer[part]
    # Each bound is followed: what is rented is of these kinds and sizes, what one has costs what it costs.
    every = [*answer["options"], *answer["closest"]]
    assert {each["price_kind"] for each in every} <= {"spot", "on_demand", None}
    assert all(each["devices"] <= 64 for each in every)
    plain = api.recommend(model, **{name: options[name] for name in options.keys() & {"tokens"}}, **BOUNDS)
    assert [each.seconds for each in plain.options] != [each.seconds for each in asked.options]


def test_what_one_has_costs_what_is_said():
    asked = {"devices": "l4", "tokens": "1B", "have": "8xa100-80gb"}
    free, paid = (api.recommend("llama3-8b", **asked, have_usd_per_device_hour=usd) for usd in (None, 2.0))
    (free_usd, paid_usd) = (min(each.usd for each in found.options if each.provider == "own") for found in (free, paid))
    assert free_usd == 0 < paid_usd


def test_a_recipes_only_step_is_what_is_recommended_for(recipe, capsys):
    loaded = recipe()
    answer = printed(capsys, "recommend", "--model", "r.yaml", "--devices", "h100-sxm")
    plan = printed(capsys, "plan", "r.yaml", "--on", "8xh100-sxm")["plan"]
    assert answer["workload"]["steps"] == plan["workload"]["steps"] == 1000
    asked = api.recommend(loaded, devices="h100-sxm")
    assert as_printed({"options": asked.options})["options"] == answer["options"]


@pytest.mark.parametrize(("step", "steps", "batch_tokens"), [("base", 1000, 65536), ("tuned", 30, 32768)])
def test_one_of_several_steps_is_named(recipe, capsys, step, steps, batch_tokens):
    loaded = recipe(TUNED)
    answer = printed(capsys, "recommend", "--model", "r.yaml", "--step", step, "--devices", "h100-sxm")
    assert (answer["workload"]["steps"], answer["workload"]["batch_tokens"]) == (steps, batch_tokens)
    asked = api.recommend(loaded, step=step, devices="h100-sxm")
    assert as_printed({"options": asked.options})["options"] == answer["options"]


def test_several_steps_are_not_taken_for_one(recipe, capsys):
    loaded = recipe(TUNED)
    assert cli.main(["recommend", "--model", "r.yaml"]) == 2
    seen = "several steps of the stage train (seen base, tuned); say which, for example "
    assert f"{seen}--step tuned" in capsys.readouterr().err
    with pytest.raises(RecipeError) as caught:
        api.recommend(loaded)
    assert str(caught.value) == f"{seen}step=tuned"
    with pytest.raises(TypeError, match="a model has none"):
        api.recommend("llama3-8b", step="base")
    assert cli.main(["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--step", "base"]) == 2
    assert "--step: a step is of a recipe, and a model has none" in capsys.readouterr().err


PLANS = [
    ({"on": "8xh100-sxm", "method": "lora", "rank": "64"}, "--on 8xh100-sxm --method lora --rank 64"),
    (
        {"on": "l4", "method": "qlora", "targets": ["q_proj", "v_proj"]},
        "--on l4 --method qlora --targets q_proj,v_proj",
    ),
    ({"on": "2x8xa100-80gb", "rails": 2, "price": "$1.5"}, "--on 2x8xa100-80gb --rails 2 --price $1.5"),
    ({"on": "8xh100-sxm", "moments": "int8", "further_layers": "1"}, "--on 8xh100-sxm --moments int8 --mtp 1"),
    ({"on": "4xl4", "batch_tokens": "64k"}, "--on 4xl4 --batch 64k"),
    (
        {"on": "l4", "method": "qlora", "packing": "off", "example_tokens": "300", "tokens": "2M"},
        "--on l4 --method qlora --packing off --example-tokens 300 --tokens 2M",
    ),
]


@pytest.mark.parametrize(("options", "written"), PLANS)
def test_a_plan_is_that_of_the_command(recipe, capsys, options, written):
    recipe()
    answer = printed(capsys, "plan", "--model", "llama3-8b", *written.split(), codes=(0, 1))["plan"]
    assert as_printed({"plan": api.plan("llama3-8b", **options)})["plan"] == answer


def test_what_does_not_fit_is_told_what_would_at_both_doors(recipe, capsys):
    recipe()
    answer = printed(capsys, "plan", "--model", "llama3-8b", "--on", "l4", codes=(1,))["plan"]
    names = [each.name for each in api.plan("llama3-8b", on="l4").rejected]
    assert names == [each["name"] for each in answer["rejected"]]
    assert any("LoRA" in name for name in names)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rank", "many"), ("rails", "some"), ("further_layers", "x"), ("price", "much"), ("expert_imbalance", "high")],
)
def test_a_value_is_refused_in_the_same_words(capsys, field, value):
    asked = ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", f"{OPTIONS[field]}={value}"]
    assert cli.main(asked) == 2
    with pytest.raises(RecipeError) as caught:
        api.plan("llama3-8b", on="8xh100-sxm", **{field: value})
    line = str(caught.value).replace(f"{field}:", f"{OPTIONS[field]}:", 1)
    assert capsys.readouterr().err == f"error: {line}\n"


RUN = {"framework": "torchtitan", "model": "llama3-8b", "seq_len": 8192, "gpu": "h100", "n_gpus": 8}


def test_measured_runs_are_learnt_from_at_both_doors(recipe, capsys):
    recipe()
    Path("run.json").write_text(json.dumps(RUN | {"tokens_per_s_per_gpu": 6000}), encoding="utf-8")
    words = ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--tokens", "1B"]
    asked = {"on": "8xh100-sxm", "tokens": "1B"}
    plans = {}
    for named in (None, "none", "run.json"):
        answer = printed(capsys, *words, *(() if named is None else ("--calibrate", named)))["plan"]
        plans[named] = api.plan("llama3-8b", **asked, calibrate=named)
        assert as_printed({"plan": plans[named]})["plan"] == answer
    assert plans["run.json"].estimate.seconds != plans["none"].estimate.seconds
    assert api.plan("llama3-8b", **asked, calibrate=Path("run.json")) == plans["run.json"]
    with pytest.raises(RecipeError, match="^calibrate: not of the right kind .seen 3, expected a file"):
        api.plan("llama3-8b", **asked, calibrate=3)
    with pytest.raises(RecipeError, match="^calibrate: two answers to one question .seen `references` too"):
        api.plan("llama3-8b", **asked, calibrate="run.json", references=[])


def test_a_ledger_without_a_run_is_refused_at_both_doors(recipe, capsys):
    loaded = recipe()
    Path("none.jsonl").write_text("", encoding="utf-8")
    assert cli.main(["plan", "r.yaml", "--calibrate", "none.jsonl"]) == 4
    said = capsys.readouterr().err
    with pytest.raises(DataError) as caught:
        api.plan(loaded, calibrate="none.jsonl")
    assert said == f"error: {str(caught.value).replace('say the machine: `on`', 'say the machine: --on')}\n"
    assert all(each.origin != "ledger" for each in api.plan(loaded, calibrate="none").estimate.assumptions)


@pytest.mark.parametrize("values", ["nodes=1,2", "micro_batch=1,2,64"])
def test_a_sweep_is_that_of_the_command(recipe, capsys, values):
    recipe()
    words = ["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--tokens", "1B", "--sweep", values]
    swept = api.sweep("llama3-8b", values, on="8xh100-sxm", tokens="1B")
    assert as_printed({"sweep": swept})["sweep"] == printed(capsys, *words)["sweep"]


def test_a_formula_is_that_of_the_command(recipe, capsys):
    loaded = recipe()
    words = ["plan", "r.yaml", "--on", "8xh100-sxm", "--explain", "memory.optimizer"]
    explained = api.explain(loaded, "memory.optimizer", on="8xh100-sxm")
    assert as_printed({"explanation": explained})["explanation"] == printed(capsys, *words)["explanation"]


@pytest.mark.parametrize(("door", "value"), [("explain", "memory.optimiser"), ("sweep", "node=1,2")])
def test_what_is_neither_explained_nor_varied_is_refused_in_the_same_words(recipe, capsys, door, value):
    recipe()
    assert cli.main(["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", f"--{door}", value]) == 2
    with pytest.raises(RecipeError) as caught:
        getattr(api, door)("llama3-8b", value, on="8xh100-sxm")
    assert capsys.readouterr().err == f"error: {str(caught.value).replace(f'{door}:', f'--{door}:', 1)}\n"


def test_a_preset_stands_below_a_recipe_at_both_doors(recipe, capsys):
    recipe()
    shown = printed(capsys, "config", "show", "r.yaml", "--preset", "gpt2-124m")["recipe"]
    assert api.load_recipe("r.yaml", preset="gpt2-124m").model_dump(mode="json", by_alias=True) == shown
    assert api.load_recipe("r.yaml").model_dump(mode="json", by_alias=True) != shown
    with pytest.raises(RecipeError, match="^preset: unknown preset .seen 'gpt2'"):
        api.load_recipe(preset="gpt2")
    with pytest.raises(RecipeError, match="^preset: not of the right kind .seen 3"):
        api.load_recipe(preset=3)
