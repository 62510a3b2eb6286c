"""A look makes what the training needs, runs in a folder beside its artefact, and leaves no artefact."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.stage import StageResult
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError
from trainwright.pipeline import graph, observing, runner
from trainwright.pipeline.observing import FOLDER, look
from trainwright.spec.recipe import Recipe

RECIPE = """
name: tiny
model: {layers: 2, width: 64, heads: 4, context_tokens: 256}
data: {sources: [{kind: python-stdlib}]}
train: {sequence_tokens: 256, batch_tokens: 2048}
"""
DATASET = json.dumps({"vocabulary": 300, "splits": {"train": {"tokens": 9000, "documents": 9}}})


@pytest.fixture
def looked(monkeypatch):
    """Every stage of the real graph is recorded instead of carried out, and so is the look."""
    made, looks = [], []

    def stand_in(reference, kind):
        name = reference.split(".")[2].partition(":")[0]

        def stage(context):
            made.append(name)
            (context.out / "dataset.json").write_text(DATASET)
            return StageResult(summary={"precision": "fp32"})

        facts = {"outside_digests": {"corpus": "0" * 64}, "corpus_bytes_here": 9000, "corpus_bytes": 9000}
        fact = facts.get(reference.partition(":")[2], "0" * 64)
        return stage if kind == "stage" else lambda *args, **kwargs: fact

    def watched(reference, kind):
        return lambda context, **options: looks.append((reference, context, options))

    monkeypatch.setattr(graph, "load", stand_in)
    monkeypatch.setattr(runner, "load", stand_in)
    monkeypatch.setattr(observing, "load", watched)
    monkeypatch.setattr(observing, "check", lambda *_: None)
    return made, looks


@pytest.fixture
def recipe_of(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return lambda *overrides: load(Recipe, files=[path], overrides=list(overrides), environ={}).value


def test_inputs_are_made_and_the_training_is_not(looked, recipe_of, tmp_path) -> None:
    made, looks = looked
    how = {"last": 3, "option": "--steps", "work": "m:f", "options": {"first": 3}}
    arguments = {"root": tmp_path / "runs", "step": None, "into": "here", **how}
    folder = look(recipe_of(), **arguments)
    ((work, context, options),) = looks
    assert sorted(made) == ["data", "doctor", "plan"]
    assert (work, options) == ("m:f", {"run": None, "first": 3})
    assert folder == context.out and folder.parent == tmp_path / "runs" / FOLDER and folder.name.endswith("-here")
    assert {"plan", "dataset"} <= context.inputs.keys()
    runner.run(recipe_of(), root=tmp_path / "runs", upto="train")
    look(recipe_of(), **arguments)
    assert looks[1][2]["run"] == next((tmp_path / "runs").glob("train-*")), "the run that is there is gone on from"


def test_the_place_of_the_runs_checkpoints_is_not_the_looks(looked, recipe_of, tmp_path) -> None:
    _, looks = looked
    recipe = recipe_of(f"train.exec.checkpoint_to={tmp_path / 'place'}", "train.exec.keep_best=2")
    look(recipe, root=tmp_path / "runs", step=None, into="here", last=1, option="--steps", work="m:f", options={})
    how = looks[0][1].recipe.train.exec
    assert (how.checkpoint_to, how.keep_best) == (None, 0)
    assert recipe.train.exec.checkpoint_to is not None, "the run's own recipe is as it was"


def test_several_hosts_are_refused(looked, recipe_of, tmp_path) -> None:
    with pytest.raises(RecipeError, match="one host looks at a training"):
        look(
            recipe_of("train.exec.nodes=2"),
            root=tmp_path / "runs",
            step=None,
            into="x",
            last=1,
            option="--steps",
            work="m:f",
            options={},
        )


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}
SRUN = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "here",
    "SLURM_JOB_ID": "7",
}


@pytest.mark.parametrize(("launcher", "environ"), [("torchrun", TORCHRUN), ("srun", SRUN)])
def test_a_launchers_processes_do_not_all_look(looked, recipe_of, tmp_path, monkeypatch, launcher, environ) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match="one command looks at a training") as raised:
        look(recipe_of(), root=tmp_path / "runs", step=None, into="x", last=1, option="--steps", work="m:f", options={})
    assert (raised.value.where, raised.value.seen) == (launcher, "process 1 of 2")
    assert raised.value.fix == "run it outside torchrun and srun"
    assert looked == ([], []) and not (tmp_path / "runs").exists()
