"""What the trainer counts against what is known by definition."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import Events, read_events
from trainwright.artifact.stage import Context
from trainwright.planner.counts.saved.activations import saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.spec.summary import RECENT_UPDATES
from trainwright.spec.workload import ParallelPlan
from trainwright.stages.train import run


def test_memory_by_class_is_what_the_tensors_take(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(duration="2 steps")
    with Events(None, run="t") as events:
        (tmp_path / "out").mkdir()
        out = tmp_path / "out"
        run(Context(recipe=recipe, inputs=inputs_for(recipe), out=out, root=tmp_path, events=events))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    memory = summary["memory"]
    assert memory["weights"] == memory["gradients"] == 4 * summary["parameters"]
    assert 0 <= memory["optimizer"] - 8 * summary["parameters"] < 1000, "two moments, and a step count per parameter"
    assert memory["activations"] > 0
    assert memory["workspace"] > 50e6, "the process itself, Python and torch"
    assert summary["process_bytes"] > 50e6


@pytest.mark.parametrize(
    ("recompute", "budget"), [("none", 0), ("selective", 0), ("full", 0), ("full", 0.5), ("selective", 0.4)]
)
def test_activations_are_what_the_planner_counts(recompute, budget, make_recipe, inputs_for, train, tmp_path) -> None:
    how = {"recompute": recompute, "recompute_budget": budget}
    recipe = make_recipe(family="gpt2", **how, precision="bf16", exec_micro_batch=2, duration="2 steps")
    train(recipe, inputs_for(recipe, precision="bf16"), tmp_path / "out")
    measured = json.loads((tmp_path / "out" / "summary.json").read_text())["memory"]["activations"]
    batch = MicroBatch(sequences=2, sequence_tokens=16, dtype="bf16", device_kind="cpu")
    again = {0: None, 0.5: 1, 0.4: 2}[budget]
    assert measured == saved_bytes(recipe.model_spec(vocabulary=300), batch, recompute=recompute, recomputed=again)


def test_recomputation_that_a_plan_chose_for_its_memory_is_executed(make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe(family="gpt2", exec_fit_memory="1GiB", exec_micro_batch=2, duration="2 steps")
    train(recipe, inputs_for(recipe, recompute="full"), tmp_path / "out")
    measured = json.loads((tmp_path / "out" / "summary.json").read_text())["memory"]["activations"]
    batch = MicroBatch(sequences=2, sequence_tokens=16, dtype="fp32", device_kind="cpu")
    assert measured == saved_bytes(recipe.model_spec(vocabulary=300), batch, recompute="full")


def test_the_loss_of_the_end_is_the_mean_of_the_last_updates_whatever_is_logged(
    make_recipe, inputs_for, train, tmp_path
) -> None:
    def ended(name: str, *listeners, log_every: int) -> float:
        recipe = make_recipe(duration="30 steps", exec_checkpoint_every=1e-9, exec_log_every_steps=log_every)
        train(recipe, inputs_for(recipe), tmp_path / name, listeners)
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert summary["passes"] == 30 * 64 / (16 * (train_tokens // 16 - 1))
        loss: float = summary["train_loss"]
        return loss

    def killing(step: int):
        def kill(event) -> None:
            if event.kind == "progress" and event.name == "train" and event.value == step:
                raise SystemExit(137)

        return kill

    entry = json.loads(inputs_for(make_recipe())["dataset"].file("dataset.json").read_text())["splits"]
    train_tokens = entry["train"]["tokens"]
    exact = ended("each", log_every=1)
    logged = [event.value for event in read_events(tmp_path / "each" / "events.jsonl") if event.name == "train/loss"]
    assert len(logged) == 30
    assert exact == pytest.approx(sum(logged[-RECENT_UPDATES:]) / RECENT_UPDATES, rel=1e-12)
    assert ended("seldom", log_every=7) == exact
    for step in (4, 21):
        with pytest.raises(SystemExit):
            ended("killed", killing(step), log_every=11)
    assert ended("killed", log_every=11) == exact


def test_goodput_counts_the_sessions_before(make_recipe, inputs_for, train, tmp_path) -> None:
    """An earlier session of 100 seconds left a log and no checkpoint: all that it did is done again."""
    recipe = make_recipe(exec_log_every_steps=4)
    out = tmp_path / "run"
    out.mkdir()
    lines = [{"run": "tiny", "t_s": at, "kind": "message", "name": "", "value": 0.0} for at in (1000.0, 1100.0)]
    (out / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    train(recipe, inputs_for(recipe), out)
    summary = json.loads((out / "summary.json").read_text())
    goodput, phases = summary["goodput"], summary["phases"]
    steps_s = sum(seconds for name, seconds in phases.items() if name not in ("compile", "checkpoint", "evaluate"))
    assert goodput["wall_s"] > 100 + steps_s
    assert goodput["steps_s"] == pytest.approx(steps_s) and goodput["steps_s"] < 100
    assert goodput["share"] == pytest.approx(goodput["steps_s"] / goodput["wall_s"])
    assert goodput["lost_s"] == pytest.approx(goodput["wall_s"] - sum(phases.values()))
    told = [event for event in read_events(out / "events.jsonl") if event.name == "train/goodput"]
    assert [event.step for event in told] == [4, 8] and all(0 < event.value < 1 for event in told)
    assert summary["ranks"] == [], "one process is the run"


@pytest.mark.parametrize(
    ("command_s", "told_s", "start_s"),
    [
        (50.0, None, 50.0),  # the first session: ranks that start and meet are part of it
        (50.0, 90_000.0, 50.0),  # resumed after a night
        (5_000.0, 40.0, 40.0),  # restarted 40 seconds after the fault
        (5_000.0, -3_600.0, 0.0),  # the clock was set back
    ],
)
def test_goodput_counts_the_time_before_the_first_step(
    make_recipe, inputs_for, tmp_path, command_s, told_s, start_s
) -> None:
    recipe = make_recipe()
    out, before_s = tmp_path / "run", 0.0
    out.mkdir()
    if told_s is not None:
        before_s, last_s = 100.0, time.time() - told_s
        lines = [("message", last_s - 100), ("restart", last_s)]
        records = [{"run": "tiny", "t_s": at, "kind": kind, "name": "", "value": 0.0} for kind, at in lines]
        (out / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    inputs = inputs_for(recipe)
    with Events(None, run="tiny") as events:
        began_s = time.monotonic() - command_s
        run(Context(recipe=recipe, inputs=inputs, out=out, events=events, root=tmp_path, began_s=began_s))
    goodput = json.loads((out / "summary.json").read_text())["goodput"]
    assert goodput["wall_s"] == pytest.approx(before_s + start_s, abs=15)
    assert goodput["lost_s"] > before_s + start_s
    (start,) = [event.value for event in read_events(out / "events.jsonl") if event.name == "train/start_s"]
    assert start == pytest.approx(start_s, abs=15)


COMPILED = """
import sys
from pathlib import Path

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact
from trainwright.spec.recipe import Recipe
from trainwright.stages.train import run, step

step.compiler = lambda _: "aot_eager"
text, dataset, plan, out = sys.argv[1:]
inputs = {"dataset": open_artifact(Path(dataset)), "plan": open_artifact(Path(plan))}
with Events(None, run="tiny") as events:
    recipe = Recipe.model_validate_json(text)
    run(Context(recipe=recipe, inputs=inputs, out=Path(out), root=Path(out), events=events))
"""


def test_a_compiled_training_with_recomputation_counts_its_graphs(make_recipe, inputs_for, train, tmp_path) -> None:
    """In a process without run-time shape checks, which torch.compile cannot see through."""
    losses = {}
    for name, compiled in (("eager", False), ("compiled", True)):
        recipe, out = make_recipe(family="gpt2", recompute="full", exec_compile=compiled), tmp_path / name
        inputs = inputs_for(recipe, parallel=ParallelPlan(threads=1, deterministic=True, compile=compiled))
        out.mkdir()
        if compiled:
            words = recipe.model_dump_json(), *(str(inputs[role].path) for role in ("dataset", "plan")), str(out)
            done = subprocess.run([sys.executable, "-c", COMPILED, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
        else:
            train(recipe, inputs, out)
        summary = json.loads((out / "summary.json").read_text())
        losses[name] = summary["train_loss"]
        assert (summary["phases"]["compile"] > 0) == compiled
        graphs = [event.value for event in read_events(out / "events.jsonl") if event.name == "train/compiled_graphs"]
        assert [count >= 1 for count in graphs] == [True] * compiled
    assert losses["compiled"] == pytest.approx(losses["eager"], rel=1e-5)


def test_a_padded_vocabulary_is_stored_nowhere_and_trains_the_same(make_recipe, inputs_for, train, tmp_path) -> None:
    """299 entries are 320 rows in products; a run goes on with any padding."""

    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    found = {}
    for multiple in (1, 64):
        recipe = make_recipe(exec_pad_vocabulary=multiple, exec_checkpoint_every=1e-9)
        train(recipe, inputs_for(recipe), tmp_path / str(multiple))
        summary = json.loads((tmp_path / str(multiple) / "summary.json").read_text())
        found[multiple] = summary["train_loss"], load_file(tmp_path / str(multiple) / "model.safetensors")
    (loss, weights), (padded_loss, padded) = found[1], found[64]
    assert padded_loss == pytest.approx(loss, rel=1e-6)
    assert weights["embedding"].shape == (299, 32)
    for name, weight in weights.items():
        torch.testing.assert_close(padded[name], weight, atol=1e-4, rtol=1e-3)
    recipe = make_recipe(exec_pad_vocabulary=64, exec_checkpoint_every=1e-9)
    with pytest.raises(SystemExit):
        train(recipe, inputs_for(recipe), tmp_path / "other", (kill,))
    recipe = make_recipe(exec_pad_vocabulary=1)
    train(recipe, inputs_for(recipe), tmp_path / "other")
    summary = json.loads((tmp_path / "other" / "summary.json").read_text())
    assert summary["execution"]["resumes"] == 1
    assert summary["train_loss"] == pytest.approx(loss, rel=1e-6)
