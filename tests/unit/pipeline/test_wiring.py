"""Lists of steps: who takes what from whom, under which recipe, and what is refused."""

from __future__ import annotations

import re

import pytest

from trainwright.core.config.load import load
from trainwright.core.errors import RecipeErrors
from trainwright.pipeline.steps import steps
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_artifact

HEAD = """\
name: line
model: {layers: 2, width: 64, heads: 2, context_tokens: 128}
data: {sources: [{kind: python-stdlib}], tokenizer: {vocabulary: 1024}}
train: {sequence_tokens: 128, batch_tokens: 1024, duration: 100 steps, optimizer: {lr: 1e-3}}
stages:
"""
TUNED = """\
  - {name: base, stage: train}
  - name: tuned
    stage: train
    from: base
    train: {duration: 10 steps, optimizer: {lr: 1e-5}}
    data: {sources: [{kind: files, paths: [chat]}]}
"""


@pytest.fixture
def wired(tmp_path):
    """The steps of a recipe with this list, by name."""

    def wire(listed: str):
        path = tmp_path / "line.yaml"
        path.write_text(HEAD + listed)
        return {step.name: step for step in steps(load(Recipe, files=[path], environ={}).value)}

    return wire


@pytest.fixture
def problems(tmp_path):
    """What is wrong with a list, each problem with its place."""

    def collect(listed: str) -> list[str]:
        path = tmp_path / "line.yaml"
        path.write_text(HEAD + listed)
        loaded = load(Recipe, files=[path], environ={})
        with pytest.raises(RecipeErrors) as caught:
            steps(loaded.value)
        return [str(loaded.located(problem)).replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return collect


def test_without_a_list_each_stage_stands_once_under_its_own_name(tmp_path) -> None:
    path = tmp_path / "line.yaml"
    path.write_text(HEAD.replace("stages:\n", ""))
    recipe = load(Recipe, files=[path], environ={}).value
    line = {step.name: step for step in steps(recipe)}
    assert list(line) == ["doctor", "plan", "data", "train", "evaluate", "audit", "export", "serve", "report"]
    assert line["train"].inputs == {"dataset": "data", "plan": "plan"}
    assert line["evaluate"].inputs == {"checkpoint": "train", "dataset": "data", "plan": "plan"}
    assert len(line["report"].inputs) == 8
    assert all(step.recipe is recipe for step in line.values())


def test_a_list_that_says_the_usual_line_is_wired_alike(wired) -> None:
    line = wired("".join(f"  - {{stage: {name}}}\n" for name in ("doctor", "plan", "data", "train", "export", "serve")))
    assert {name: dict(step.inputs) for name, step in line.items()} == {
        "doctor": {},
        "plan": {"machine": "doctor"},
        "data": {},
        "train": {"plan": "plan", "dataset": "data"},
        "export": {"checkpoint": "train"},
        "serve": {"bundle": "export"},
    }


def test_fine_tuning_on_other_data_gets_a_dataset_in_the_tokens_of_its_base_and_a_plan_of_its_own(wired) -> None:
    line = wired(TUNED)
    assert list(line) == ["data", "doctor", "plan", "base", "tuned.data", "tuned.plan", "tuned"]
    assert line["base"].inputs == {"dataset": "data", "plan": "plan"}
    assert line["tuned"].inputs == {"base": "base", "dataset": "tuned.data", "plan": "tuned.plan"}
    assert line["tuned.data"].inputs == {"base": "base"}
    assert line["tuned.plan"].inputs == {"base": "base", "machine": "doctor"}


def test_a_step_sees_the_recipe_of_the_step_before_it_with_its_own_keys_over_it(wired) -> None:
    line = wired(TUNED + "  - {name: polished, stage: train, from: tuned, train: {schedule: {warmup: 1 steps}}}\n")
    base, tuned, polished = (line[name].recipe for name in ("base", "tuned", "polished"))
    assert (base.train.optimizer.lr, base.train.duration) == (1e-3, "100 steps")
    assert (tuned.train.optimizer.lr, tuned.train.duration, tuned.train.batch_tokens) == (1e-5, "10 steps", 1024)
    assert (polished.train.optimizer.lr, polished.train.schedule.warmup) == (1e-5, "1 steps")
    assert [source.kind for source in tuned.data.sources] == ["files"]
    assert tuned.data.tokenizer.vocabulary == 1024, "keys beside the changed one stay"
    assert line["polished"].inputs["dataset"] == "tuned.data", "it says nothing of data"


def test_what_follows_takes_all_it_needs_from_the_step_that_it_names(wired) -> None:
    follows = "".join(f"  - {{stage: {name}, from: tuned}}\n" for name in ("evaluate", "audit", "export"))
    line = wired(TUNED + follows + "  - {stage: serve}\n  - {stage: report, from: tuned}\n")
    assert line["evaluate"].inputs == {"checkpoint": "tuned", "dataset": "tuned.data", "plan": "tuned.plan"}
    assert line["audit"].inputs == {"plan": "tuned.plan", "checkpoint": "tuned"}
    assert line["serve"].inputs == {"bundle": "export"}
    assert line["report"].inputs == {
        "machine": "doctor",
        "plan": "tuned.plan",
        "dataset": "tuned.data",
        "checkpoint": "tuned",
        "evaluation": "evaluate",
        "audit": "audit",
        "bundle": "export",
        "answer": "serve",
    }


def test_roles_can_be_named_one_by_one(wired) -> None:
    chat = "  - {name: chat, stage: data, from: base, data: {sources: [{kind: files, paths: [chat]}]}}\n"
    line = wired(
        "  - {name: base, stage: train}\n" + chat + "  - {name: t, stage: train, from: {base: base, dataset: chat}}\n"
    )
    assert line["t"].inputs == {"base": "base", "dataset": "chat", "plan": "plan"}
    assert line["t"].recipe.data.sources[0].kind == "files"
    assert line["chat"].inputs == {"base": "base"}


def test_an_artefact_on_disk_is_an_input_like_any_other(wired, tmp_path) -> None:
    kept = make_artifact(tmp_path / "kept", "train", {"tokenizer.json": b"{}"})
    line = wired(f"  - {{name: t, stage: train, from: {kept.path}, data: {{strict: true}}}}\n")
    assert line["t"].inputs["base"] == kept.path
    assert line["data"].inputs == {"base": kept.path}


def test_two_trainings_that_differ_in_the_rate_share_data_and_not_the_plan(wired) -> None:
    line = wired("  - {name: a, stage: train}\n  - {name: b, stage: train, train: {optimizer: {lr: 1e-4}}}\n")
    assert line["a"].inputs == {"dataset": "data", "plan": "plan"}
    assert line["b"].inputs == {"dataset": "data", "plan": "b.plan"}


def test_a_step_that_changes_only_the_task_gets_a_plan_of_its_own(wired) -> None:
    line = wired(
        "  - name: pre\n    stage: train\n"
        "    data: {sources: [{kind: jsonl, paths: [notes.jsonl], label_key: label}]}\n"
        "  - {name: cls, stage: train, from: pre, task: {name: classify, labels: [good, bad]}}\n"
        "  - {name: measured, stage: evaluate, from: cls, evaluate: {tokens: 64}}\n"
    )
    assert line["pre"].inputs["plan"] != line["cls"].inputs["plan"]
    assert line[str(line["cls"].inputs["plan"])].recipe.task.labels == ("good", "bad")
    assert line["measured"].inputs["plan"] == line["cls"].inputs["plan"]


def test_weights_of_an_earlier_step_take_the_place_of_init_from(tmp_path) -> None:
    path = tmp_path / "line.yaml"
    path.write_text(HEAD.replace("layers: 2", "init_from: pretrained, layers: 2") + TUNED)
    line = {step.name: step for step in steps(load(Recipe, files=[path], environ={}).value)}
    assert line["base"].recipe.model.init_from == "pretrained"
    assert line["tuned"].recipe.model.init_from is None


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("  - {stage: train}\n  - {stage: train}\n", "line.yaml:7:5: stages.1.name: two steps have this name"),
        ("  - {stage: train, name: data}\n", "line.yaml:6:20: stages.0.name: another stage has this name"),
        ("  - {stage: export, from: bse}\n", "line.yaml:6:21: stages.0.from: no such step (seen bse"),
        (
            "  - {stage: export, from: base}\n  - {stage: train, name: base}\n",
            "line.yaml:6:21: stages.0.from: this step comes later (seen base); put it before this one",
        ),
        (
            "  - {name: base, stage: train}\n  - {stage: serve, from: base}\n",
            "line.yaml:7:20: stages.1.from: serve takes bundle (seen base, a checkpoint); put a step {stage: export",
        ),
        (
            "  - {name: base, stage: train}\n  - {stage: export, from: {chekpoint: base}}\n",
            "line.yaml:7:28: stages.1.from.chekpoint: export has no such input (expected one of checkpoint); did you",
        ),
        (
            "  - {name: base, stage: train}\n  - {stage: evaluate, from: {dataset: base}}\n",
            "line.yaml:7:30: stages.1.from.dataset: an input of another kind (seen checkpoint, expected a dataset)",
        ),
        (
            "  - {name: a, stage: train}\n  - {name: b, stage: train, from: a}\n  - {stage: export}\n",
            "line.yaml:8:5: stages.2: several steps make a checkpoint (seen a, b); say which, for example from: b",
        ),
        (
            "  - {stage: train, train: {optimizer: {lr: -1}}}\n",
            "line.yaml:6:40: stages.0.train.optimizer.lr: out of range (seen -1, expected a number > 0)",
        ),
        (
            "  - {stage: train, train: {optimizr: {lr: 1}}}\n",
            "line.yaml:6:28: stages.0.train.optimizr: unknown key; did you mean 'optimizer'?",
        ),
        (
            "  - {stage: train, train: {sequence_tokens: 256}}\n",
            "line.yaml:6:28: stages.0.train.sequence_tokens: train.sequence_tokens (256) exceeds model.",
        ),
        (
            "  - {stage: export, train: {duration: 5 steps}}\n",
            "line.yaml:6:21: stages.0.train: export does not read this section (expected export)",
        ),
        (
            "  - {stage: train}\n  - {name: b, stage: train, from: train, data: {tokenizer: {vocabulary: 9000}}}\n",
            "line.yaml:7:61: stages.1.data.tokenizer.vocabulary: the tokenizer is that of the step before; drop it",
        ),
        ("  - {stage: train, from: ./nowhere}\n", "line.yaml:6:20: stages.0.from: no complete artefact here"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(problems, listed, expected) -> None:
    (line,) = problems(listed)
    assert line.startswith(expected)


def test_all_problems_come_at_once_and_what_follows_from_them_does_not(problems) -> None:
    lines = problems(
        "  - {name: base, stage: train, train: {optimizer: {lr: -1}}}\n"
        "  - {stage: export, from: base}\n"
        "  - {stage: evaluate, from: bas}\n"
    )
    assert [line.split(": ")[1] for line in lines] == ["stages.0.train.optimizer.lr", "stages.2.from"]


def test_a_checkpoint_of_the_wrong_kind_on_disk_is_named(problems, tmp_path) -> None:
    kept = make_artifact(tmp_path / "kept", "export", {"a": b"1"})
    (line,) = problems(f"  - {{stage: train, from: {kept.path}}}\n")
    assert "train takes checkpoint, dataset, plan" in line and "a bundle" in line


def test_a_damaged_artefact_on_disk_is_named_with_both_digests(problems, tmp_path) -> None:
    kept = make_artifact(tmp_path / "kept", "train", {"a": b"1"})
    path = kept.path / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"checkpoint", b"checkpoinT"))
    (line,) = problems(f"  - {{stage: train, from: {kept.path}}}\n")
    shown = re.search(r"damaged manifest.*seen \S+: ([0-9a-f]{64}), expected ([0-9a-f]{64})", line)
    assert shown is not None, line
    assert shown[1] != shown[2]
