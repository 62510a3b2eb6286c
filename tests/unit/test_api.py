from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright import api
from trainwright.cli import main as cli
from trainwright.core.errors import DataError, MachineError, RecipeError, RecipeErrors
from trainwright.hardware.prices.regions import lies_in
from trainwright.pipeline import runner
from trainwright.pipeline.question_fields import SEARCH

RECIPE = """\
name: tiny
model: {layers: 2, width: 64, heads: 4, context_tokens: 256}
data: {sources: [{kind: python-stdlib}]}
train: {sequence_tokens: 256, batch_tokens: 2048, duration: 10 steps}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    return api.load_recipe("tiny.yaml")


def test_overrides_win_over_the_environment_over_files(recipe):
    environ = {"TRAINWRIGHT_TRAIN__OPTIMIZER__LR": "1e-2", "TRAINWRIGHT_TRAIN__BATCH_TOKENS": "4096"}
    loaded = api.load_recipe("tiny.yaml", overrides=["train.optimizer.lr=1e-3"], environ=environ)
    assert (loaded.train.optimizer.lr, loaded.train.batch_tokens) == (1e-3, 4096)
    assert recipe.train.batch_tokens == 2048


def test_everything_wrong_in_a_recipe_is_said(recipe):
    with pytest.raises(RecipeErrors) as caught:
        api.load_recipe("tiny.yaml", overrides=["train.lrr=1", "modle.width=3"])
    assert len(caught.value.problems) == 2


def test_a_plan_is_that_of_the_command(capsys):
    plan = api.plan("llama3-8b", on="8xh100-sxm", tokens="100B", layout={"tp": 8})
    assert (plan.parallel.tp, plan.workload.total_tokens) == (8, plan.workload.steps * plan.workload.batch_tokens)
    assert cli.main(["plan", "--model", "llama3-8b", "--on", "8xh100-sxm", "--tokens", "100B", "--layout", "tp=8"]) == 0
    assert f"MFU {plan.estimate.mfu:.1%}" in capsys.readouterr().out


def test_a_recipe_is_planned_on_this_machine(recipe):
    assert api.plan(recipe).workload.steps == 10


def test_a_length_in_epochs_is_planned_as_the_command_plans_it(recipe, tmp_path, capsys):
    text = "the quick brown fox jumps over the lazy dog " * 2000
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    overrides = ["data.sources=[{kind: files, paths: [corpus.txt]}]", "train.duration=3 epochs"]
    plan = api.plan(api.load_recipe("tiny.yaml", overrides=overrides))
    assert 1 <= plan.workload.total_tokens < 3 * len(text)
    assert cli.main(["plan", "tiny.yaml", *overrides, "--calibrate", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["workload"]["steps"] == plan.workload.steps


def test_a_cluster_of_this_machine_is_planned_as_the_command_plans_it(recipe, capsys):
    asked = {"on": "2x1xhere", "tokens": "1M", "scale_out": "10Gb/s", "stack": "trainwright", "batch_tokens": 8192}
    plan = api.plan("gpt2-124m", **asked)
    assert plan.cluster.devices == 2 and plan.cluster.device.kind in ("cpu", "cuda")
    text = "plan --model gpt2-124m --on 2x1xhere --tokens 1M --stack trainwright --batch 8192 --json"
    assert cli.main([*text.split(), "--scale-out", "10Gb/s"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["plan"]["cluster"]["nodes"] == 2
    assert cli.main(text.removesuffix(" --json").split()) == 2
    assert "--scale-out: the link between machines is not known here" in capsys.readouterr().err


STEPS = "stages=[{name: base, stage: train}, {name: tuned, stage: train, from: base, train: {duration: 3 steps}}]"


def test_a_step_is_planned_as_the_command_plans_it(recipe, capsys):
    stepped = api.load_recipe("tiny.yaml", overrides=[STEPS])
    assert (api.plan(stepped, step="base").workload.steps, api.plan(stepped, step="tuned").workload.steps) == (10, 3)
    assert cli.main(["plan", "tiny.yaml", STEPS, "--step", "tuned", "--calibrate", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["workload"]["steps"] == 3


def test_several_steps_are_not_planned_as_one(recipe):
    stepped = api.load_recipe("tiny.yaml", overrides=[STEPS])
    with pytest.raises(
        RecipeError, match="several steps of the stage train .seen base, tuned.; say which, for example step=tuned"
    ):
        api.plan(stepped)
    with pytest.raises(RecipeError, match="no such step"):
        api.plan(stepped, step="tunde")
    with pytest.raises(TypeError, match="a model has none"):
        api.plan("llama3-8b", on="8xh100-sxm", step="base")


OPTIONS = [
    ({"foo": 3}, "unknown option .seen 'foo', expected one of tokens"),
    ({"optimiser": "adamw"}, "unknown option .*did you mean 'optimizer'"),
    ({"optimizer": "foo"}, "^optimizer: unknown value .seen 'foo', expected one of adamw"),
    ({"precision": 16}, "^precision: unknown value .seen '16'"),
    ({"layout": {"dp": 4}}, "^layout: unknown part of a layout .seen 'dp', expected one of dp_replicate"),
    ({"layout": {"tp": 0}}, "^layout: not a number of ranks .seen tp=0"),
    ({"layout": {"tp": True}}, "^layout: not a number of ranks .seen tp=true"),
    ({"layout": {"zero_stage": 9}}, "^layout: no stage of ZeRO .seen zero_stage=9"),
    ({"layout": {"recompute": "sometimes"}}, "^layout: unknown recompute .seen 'sometimes'"),
    ({"layout": 8}, "^layout: this is no layout .seen 8"),
    ({"tokens": float("nan")}, "^tokens: cannot read a quantity .seen nan"),
    ({"tokens": True}, "^tokens: cannot read a quantity .seen True"),
    ({"tokens": 1.5}, "^tokens: not a whole number .seen 1.5"),
    ({"batch_tokens": -4}, "^batch_tokens: must be at least 1 .seen -4"),
    ({"rank": "many"}, "^rank: cannot read a quantity"),
    ({"price": "much"}, "^price: no price .seen 'much'"),
    ({"expert_imbalance": "nan"}, "^expert_imbalance: must be a number .seen 'nan'"),
    ({"fused_loss": 1}, "^fused_loss: must be True or False .seen 1"),
    ({"stack": 5}, "^stack: must be text .seen 5"),
    ({"clouds": []}, "^clouds: no name in this list"),
    ({"references": "runs.json"}, "^references: must be measured runs"),
]


@pytest.mark.parametrize(("option", "message"), OPTIONS)
def test_a_bad_option_of_a_plan_ends_in_one_line(option, message):
    with pytest.raises(RecipeError, match=message) as caught:
        api.plan("llama3-8b", on="8xh100-sxm", **option)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"layout": "tp=8"}, {"layout": {"tp": 8}}),
        ({"layout": {"tp": "8", "compile": True}}, {"layout": "tp=8,compile=true"}),
        ({"sequence_tokens": "4k", "batch_tokens": "4M"}, {"sequence_tokens": 4000, "batch_tokens": 4_000_000}),
        ({"clouds": "aws,gcp"}, {"clouds": ["aws", "gcp"]}),
        (
            {"price": "$2.5", "method": "lora", "rank": "8", "rails": "4"},
            {"price": 2.5, "method": "lora", "rank": 8, "rails": 4},
        ),
        ({"optimizer": None, "layout": None}, {}),
    ],
)
def test_an_option_is_taken_as_text_too(written, meant):
    asked = {"on": "8xh100-sxm", "tokens": "10B"}
    assert api.plan("llama3-8b", **asked, **written) == api.plan("llama3-8b", **asked, **meant)


def test_a_text_is_one_item_of_a_list(recipe):
    assert api.load_recipe("tiny.yaml", overrides="seed=5").seed == 5
    asked = {"tokens": "20B", "have": "8xh100-sxm"}
    one = api.recommend("llama3-8b", **asked, devices="h100-sxm", clouds="aws", deadline_s="7d", budget_usd="50k$")
    goals = {"deadline_s": 7 * 86400, "budget_usd": 50_000}
    assert one == api.recommend("llama3-8b", **asked, devices=["h100-sxm"], clouds=["aws"], **goals)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"deadline_s": -1}, "^deadline_s: cannot read a quantity .seen -1"),
        ({"deadline_s": 0}, "^deadline_s: must be above zero"),
        ({"budget_usd": True}, "^budget_usd: cannot read a quantity"),
        ({"devices": 5}, "^devices: must be text .seen 5"),
        ({"deadline_s": "14"}, "^deadline_s: a time needs its unit"),
        ({"have": 5}, "^have: must be text"),
        ({"have": "8xnothing"}, "^have: unknown device"),
        ({"have_usd_per_device_hour": "dear"}, "^have_usd_per_device_hour: cannot read a quantity"),
        ({"price_kinds": "cheap"}, "^price_kinds: unknown value .seen 'cheap', expected one of on_demand"),
        ({"most_devices": 0}, "^most_devices: must be at least 1"),
        ({"foo": 3}, "unknown option"),
        ({"scale_up": "pcie4"}, "unknown option .seen 'scale_up'"),
        ({"price": 2.0}, "^price: a price of which device. .seen '2.0', expected for example h100-sxm"),
        ({"price": {"l4": 0.7}, "devices": "h100-sxm"}, "^price: a price of a device that is not looked at .seen l4"),
    ],
)
def test_a_bad_option_of_a_recommendation_ends_in_one_line(option, message):
    with pytest.raises(RecipeError, match=message):
        api.recommend("llama3-8b", tokens="20B", **option)


BOUNDS = {
    "budget_usd": "100k$",
    "deadline_s": "90d",
    "devices": "h100-sxm",
    "clouds": "aws",
    "regions": "us",
    "price_kinds": "on_demand",
    "most_devices": 64,
    "have": "8xa100-80gb",
    "have_usd_per_device_hour": 0.1,
    "have_bought_usd": "10k$",
    "have_years": 3,
    "usd_per_kwh": 0.2,
    "price": {"h100-sxm": 2.0},
}


def test_every_bound_of_a_search_is_an_option_in_python():
    assert BOUNDS.keys() == SEARCH.keys()
    # What own machines cost is said in one of two ways.
    bought = {name: value for name, value in BOUNDS.items() if name != "have_usd_per_device_hour"}
    rented = {name: value for name, value in BOUNDS.items() if name not in ("have_bought_usd", "have_years")}
    assert api.recommend("llama3-8b", tokens="20B", **rented).options
    found = api.recommend("llama3-8b", tokens="20B", **bought)
    assert {option.device for option in found.options} == {"h100-sxm", "a100-sxm-80gb"}
    given = [option for option in found.options if option.device == "h100-sxm"]
    assert {option.price.usd_per_device_hour for option in given} == {2.0}


def test_regions_are_asked_for_in_python_as_on_the_command_line():
    asked = {"tokens": "20B", "devices": "h100-sxm", "price_kinds": "on_demand"}
    found = api.recommend("llama3-8b", **asked, regions="eu").options
    assert all(lies_in(option.price.region, "eu") for option in found)
    assert len(found) < len(api.recommend("llama3-8b", **asked).options)


def test_what_is_no_recipe_or_model_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="^model: not of the right kind .seen None, expected a name"):
        api.plan(None, on="8xh100-sxm")
    with pytest.raises(RecipeError, match="^on: must be text"):
        api.plan("llama3-8b", on=8)
    with pytest.raises(RecipeError, match="^recipe: not of the right kind .seen 'tiny.yaml', .*load_recipe"):
        api.run("tiny.yaml")
    with pytest.raises(RecipeError, match="^overrides: not of the right kind .seen 3, expected key=value"):
        api.load_recipe("tiny.yaml", overrides=[3])
    with pytest.raises(RecipeError, match="^overrides: not of the right kind .seen 5, expected key=value"):
        api.load_recipe("tiny.yaml", overrides=5)
    with pytest.raises(DataError, match="no complete artefact here"):
        api.open_artifact(str(tmp_path))


def test_a_workspace_is_a_path(recipe):
    with pytest.raises(RecipeError, match="^workspace: not of the right kind .seen 3"):
        api.run(recipe, workspace=3)


@pytest.mark.parametrize("arguments", [{"tokens": 1}, {"layout": {"tp": 2}}])
def test_a_recipe_is_planned_as_it_stands(recipe, arguments):
    with pytest.raises(TypeError, match="as it stands"):
        api.plan(recipe, **arguments)


def test_a_model_is_planned_somewhere():
    with pytest.raises(TypeError, match="on="):
        api.plan("llama3-8b")
    with pytest.raises(RecipeError, match="unknown model"):
        api.plan("lama9", on="8xh100-sxm")


def test_what_is_recommended_meets_its_goals():
    found = api.recommend("llama3-8b", tokens="20B", deadline_s=7 * 86400, clouds=["aws"], devices=["h100-sxm"])
    assert found.options and all(option.seconds <= 7 * 86400 for option in found.options)
    assert {option.device for option in found.options} == {"h100-sxm"}


def test_a_run_keeps_its_results_in_the_workspace(recipe, monkeypatch):
    asked = []
    monkeypatch.setattr(runner, "run", lambda recipe, **arguments: asked.append(arguments) or {})
    api.run(recipe, progress=False)
    api.run(recipe, workspace="~/here", upto="data", progress=False)
    assert asked == [
        {"root": Path("runs/tiny"), "upto": None, "listeners": ()},
        {"root": Path.home() / "here", "upto": "data", "listeners": ()},
    ]


def test_a_workspace_that_is_a_file_is_named_by_the_argument(recipe):
    with pytest.raises(
        MachineError, match=r"^tiny\.yaml: cannot write: .*choose another place with `workspace`$"
    ) as caught:
        api.run(recipe, workspace="tiny.yaml")
    assert caught.value.field == "workspace"
