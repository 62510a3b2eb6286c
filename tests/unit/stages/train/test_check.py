"""A training that would end badly is refused before anything is made."""

from __future__ import annotations

import json

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.stages.train import check
from trainwright.stages.train.check import METRICS, problems


def of(tmp_path, *keys: str) -> list[str]:
    return [str(problem) for problem in problems(planned_recipe(tmp_path, *keys), None)]


def test_the_usual_recipe_has_none(tmp_path) -> None:
    assert of(tmp_path, "train.exec.keep_best=2", "train.exec.best_by=min perplexity") == []


def test_a_metric_that_the_task_does_not_measure_is_named(tmp_path) -> None:
    keys = ("train.exec.best_by=max acuracy",)
    assert of(tmp_path, *keys) == [], "nobody asks for the best"
    (line,) = of(tmp_path, *keys, "train.exec.keep_best=1")
    assert line == (
        "train.exec.best_by: next-token measures nothing of this name "
        "(seen 'acuracy', expected one of loss, bits_per_byte, perplexity)"
    )
    (line,) = of(tmp_path, "train.exec.best_by=min los", "train.exec.keep_best=1")
    assert line.endswith("did you mean 'loss'?")


def test_stopping_early_needs_a_validation_of_its_metric(tmp_path) -> None:
    assert of(tmp_path, "train.early_stopping={patience: 2}") == []
    (line,) = of(tmp_path, "train.early_stopping={by: max acuracy}")
    assert line.startswith("train.early_stopping.by: next-token measures nothing of this name (seen 'acuracy'")
    (line,) = of(tmp_path, "train.early_stopping={patience: 2}", "data.split={train: 0.9, validation: 0, test: 0.1}")
    assert line.startswith("train.early_stopping: without a validation split nothing says when to stop early")


def test_the_names_are_those_that_validation_measures(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe(duration="2 steps")
    train(recipe, inputs_for(recipe), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert tuple(summary["validation"]["metrics"]) == METRICS["next-token"]


@pytest.mark.parametrize(("place", "said"), [("s4://x", "an unknown protocol"), ("memory://x", ""), ("runs", "")])
def test_where_checkpoints_go_is_looked_at(tmp_path, place, said) -> None:
    found = of(tmp_path, f"train.exec.checkpoint_to={place}")
    assert [said in line for line in found] == [True] * bool(said)


MIXTRAL = ("model.family=mixtral", "model.experts={count: 4, active: 2, ffn_width: 16}", "train.optimizer.name=adamw")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["train.precision=fp8", "train.exec.layout.tp=2"], "tp=2: float8 has one scale"),
        (["train.precision=fp8", "train.recompute=selective"], "recompute=selective: float8"),
        (["train.optimizer.moments=int8", "train.exec.layout.tp=2"], "tp=2: moments in int8"),
        ([*MIXTRAL, "train.exec.layout={dp_shard: 2, tp: 2}"], "tp=2: a model with experts"),
        ([*MIXTRAL, "train.optimizer.name=muon"], "train.optimizer.name=muon: it takes matrices one by one"),
        (["train.exec.layout={pp: 2, dp_shard: 2, zero_stage: 2}"], "zero_stage=2: a pipeline"),
        (["train.exec.layout={offload: optimizer}", "train.optimizer.name=muon"], "offload=optimizer: only AdamW"),
        (["train.exec.layout={pp: 2, schedule: zero_bubble}", "train.exec.compile=true"], "compile=True: "),
    ],
)
def test_a_layout_that_is_not_executed_is_refused_before_there_is_a_dataset(tmp_path, keys, line) -> None:
    (said,) = of(tmp_path, *keys)
    where = "train.exec.layout" if any("layout" in key for key in keys) else "train"
    assert said.startswith(f"{where}: the trainer cannot execute this (seen {line}")


NF4 = ("train.method={name: lora, frozen: nf4}",)


def test_a_base_in_nf4_needs_its_library_and_no_experts(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda name: object())
    assert of(tmp_path, *NF4) == []
    (line,) = of(tmp_path, *NF4, *MIXTRAL)
    assert "train.method.frozen=nf4: experts are stacks of matrices, which nf4 is not made of; set train.method" in line
    (line,) = of(tmp_path, *NF4, "train.exec.layout.dp_shard=2")
    assert "dp_shard=2: matrices in nf4 are not divided; set dp_shard=1" in line
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    (line,) = of(tmp_path, *NF4)
    assert line.startswith("train.method.frozen: weights in nf4 are kept by bitsandbytes, which is not installed")
    assert "pip install 'trainwright[qlora]'" in line


def test_what_the_plan_decides_is_not_refused_here(tmp_path) -> None:
    assert of(tmp_path, "train.exec.layout={pp: 2, schedule: zero_bubble}") == [], "compile=auto"
    assert of(tmp_path, "train.precision=fp8", "train.exec.layout.dp_shard=2") == []


def test_targets_that_a_loss_has_not_are_not_smoothed(tmp_path) -> None:
    assert of(tmp_path, "train.loss.label_smoothing=0.1", "train.loss.z_weight=1e-4") == []
    other = ("task.name=fixtures.plugged_task:SHAPES", "task.labels=[a, b]", "train.loss.l1_weight=1e-4")
    unmade = of(tmp_path, *other)  # without the module of what it makes
    assert not any("train.loss" in line for line in unmade)
    (line,) = set(of(tmp_path, *other, "train.loss.z_weight=0.5")) - set(unmade)
    assert line == (
        "train.loss.z_weight: the loss of fixtures.plugged_task:SHAPES is no cross-entropy of targets that this could "
        "change (seen 0.5, expected 0)"
    )


PREFERS = ("data.sources=[{kind: preferences, paths: [x]}]", "data.chat.template=turns", "task.name=preference")


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("{pp: 2}", "pp=2: the task needs its network on each rank; set pp=1"),
        ("{cp: 2}", "cp=2: the task reads whole sequences; set cp=1"),
    ],
)
def test_layouts_that_preferences_do_not_have_are_refused_by_name(tmp_path, layout, reason) -> None:
    (line,) = of(tmp_path, *PREFERS, f"train.exec.layout={layout}")
    assert line.startswith("train.exec.layout: the trainer cannot execute this") and reason in line
    assert of(tmp_path, *PREFERS, "train.exec.layout={tp: 2, dp_shard: 2}") == []


def test_what_preferences_measure_depends_on_their_loss(tmp_path) -> None:
    best = ("train.exec.keep_best=1", "train.exec.best_by=min kl")
    assert of(tmp_path, *PREFERS, *best) == []
    (line,) = of(tmp_path, *PREFERS, "task.loss=orpo", *best)
    assert line.startswith(
        "train.exec.best_by: preference measures nothing of this name (seen 'kl', expected one of loss,"
    )
    for key in ("label_smoothing", "z_weight"):
        (line,) = of(tmp_path, *PREFERS, f"train.loss.{key}=0.1")
        assert line.startswith(f"train.loss.{key}: the loss of preference is no cross-entropy")


def test_what_rewards_cannot_have_is_refused_by_name(tmp_path) -> None:
    keys = (*PREFERS[:2], "task.name=reward")
    (line,) = of(tmp_path, *keys, "train.exec.layout={cp: 2}")
    assert line.startswith("train.exec.layout") and "cp=2: the task reads whole sequences; set cp=1" in line
    for layout in ("{pp: 2}", "{tp: 2, dp_shard: 2}"):
        assert of(tmp_path, *keys, f"train.exec.layout={layout}") == []
    (line,) = of(tmp_path, *keys, "train.exec.keep_best=1", "train.exec.best_by=max accuracies")
    assert "reward measures nothing of this name (seen 'accuracies'" in line and "did you mean 'accuracy'" in line
    (line,) = of(tmp_path, *keys, "train.loss.label_smoothing=0.1")
    assert line.startswith("train.loss.label_smoothing: the loss of reward is no cross-entropy")


EMBEDS = (
    "model.family=bert",
    "data.sources=[{kind: pairs, paths: [x]}]",
    "task={name: embed, group: 4}",
    "train.sequence_tokens=64",
    "train.batch_tokens=512",
)


def test_groups_of_pairs_stay_whole_or_the_training_is_refused(tmp_path) -> None:
    assert of(tmp_path, *EMBEDS) == of(tmp_path, *EMBEDS, "train.exec.layout={dp_shard: 2}") == []
    for change, said in {
        "train.exec.micro_batch=2": "micro_batch=2: pairs are told apart in groups of task.group=4",
        "train.batch_tokens=640": "a batch of 10 pairs is not whole groups of task.group=4: make train.batch_tokens a",
        "train.exec.on_oom=adapt": "on_oom=adapt: a smaller micro batch may end inside a group",
        "train.exec.layout={dp_shard: 4}": "a rank has 2 pairs of a batch",
    }.items():
        (line,) = of(tmp_path, *EMBEDS, change)
        assert "the trainer cannot execute this" in line and said in line
    (line,) = of(tmp_path, *EMBEDS, "train.exec.keep_best=1", "train.exec.best_by=max recall")
    assert "embed measures nothing of this name (seen 'recall'" in line


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("{tp: 2}", "tp=2: the task compares all logits of a token on one rank; set tp=1"),
        ("{pp: 2}", "pp=2: the task needs its network on each rank; set pp=1"),
    ],
)
def test_layouts_that_distillation_does_not_have_are_refused_by_name(tmp_path, layout, reason) -> None:
    keys = ("task.name=distill", "task.teacher=x")
    (line,) = of(tmp_path, *keys, f"train.exec.layout={layout}")
    assert line.startswith("train.exec.layout: the trainer cannot execute this") and reason in line
    assert of(tmp_path, *keys, "train.exec.layout={cp: 2, dp_shard: 2}") == []
    (line,) = of(tmp_path, *keys, "train.loss.z_weight=0.1")
    assert line.startswith("train.loss.z_weight: the loss of distill is no cross-entropy")
