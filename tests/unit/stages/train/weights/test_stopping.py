"""Runs that stop early, against runs of just so many steps: the rate is constant, so that both take the same steps.

``max loss`` makes the first validation the best one: training only makes it worse.
"""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.core.errors import DataError, RecipeError
from trainwright.render.results.summaries import summary_line

WORSE = {"patience": 2, "by": "max loss"}
SCHEDULE = {"schedule": {"name": "constant", "warmup": "0 steps"}, "validation": {"every_steps": 2}}


def same(one, other) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def summary_in(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture
def trained(make_recipe, inputs_for, train, tmp_path):
    """Trains for so many steps at most into a folder of this name; returns the folder and the stage's result."""

    def make(name, steps, *listeners, **keys):
        recipe = make_recipe(duration=f"{steps} steps", **SCHEDULE, **keys)
        result = train(recipe, inputs_for(recipe), tmp_path / name, listeners)
        return tmp_path / name, result

    return make


def test_it_ends_after_its_patience_with_the_weights_of_the_best(trained) -> None:
    folder, result = trained("early", 20, early_stopping=WORSE)
    summary, (two, _) = summary_in(folder), trained("two", 2)
    assert (summary["steps"], summary["tokens"]) == (6, 6 * 64)
    assert summary["early_stopping"] == {"planned_steps": 20, "result_step": 2}
    assert same(folder, two)
    assert summary["validation"]["metrics"] == summary_in(two)["validation"]["metrics"]
    assert summary["best"]["step"] == 2
    line = summary_line("train", result.summary)
    assert "stopped early at step 6 of 20, with the weights of step 2" in line
    told = [event.text for event in read_events(folder / "events.jsonl") if event.kind == "message"]
    assert any(text.startswith("stopped early after step 6 of 20: 2 validations in a row") for text in told)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-00000002", "step-00000006"]


def test_without_restoring_the_result_has_the_last_weights(trained) -> None:
    folder, result = trained("early", 20, early_stopping=WORSE | {"restore_best": False})
    assert same(folder, trained("six", 6)[0])
    assert summary_in(folder)["early_stopping"] == {"planned_steps": 20, "result_step": 6}
    assert "result_step" not in result.summary and "best_checkpoint" not in result.summary


def test_a_run_that_gets_better_makes_all_its_steps(trained) -> None:
    folder, result = trained("better", 6, early_stopping={"patience": 1})
    assert same(folder, trained("six", 6)[0])
    assert summary_in(folder)["early_stopping"] == {"planned_steps": 6, "result_step": 6}
    assert "stopped_early" not in result.summary


def test_a_run_that_ends_by_itself_has_the_best_weights_too(trained) -> None:
    folder, _ = trained("patient", 6, early_stopping=WORSE | {"patience": 9})
    assert same(folder, trained("two", 2)[0])
    assert summary_in(folder)["early_stopping"] == {"planned_steps": 6, "result_step": 2}


def test_what_gains_too_little_is_waited_for_and_restored_all_the_same(trained) -> None:
    folder, _ = trained("little", 20, early_stopping={"patience": 2, "min_delta": 1e9})
    assert summary_in(folder)["early_stopping"] == {"planned_steps": 20, "result_step": 6}


@pytest.mark.parametrize("killed_after", [3, 5, 6])
@pytest.mark.parametrize("every", [0, 1e-9], ids=["best checkpoints alone", "a checkpoint of each step"])
def test_a_killed_run_goes_on_to_the_same_end(trained, killed_after, every) -> None:
    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == killed_after:
            raise SystemExit(137)

    keys = {"early_stopping": WORSE, "exec_checkpoint_every": every}
    with pytest.raises(SystemExit):
        trained("killed", 20, kill, **keys)
    folder, _ = trained("killed", 20, **keys)
    whole, _ = trained("whole", 20, **keys)
    assert same(folder, whole)
    assert summary_in(folder)["early_stopping"] == summary_in(whole)["early_stopping"]
    assert summary_in(folder)["steps"] == 6


def test_a_run_that_ended_before_its_result_was_written_is_not_trained_on(trained) -> None:
    folder, _ = trained("early", 20, early_stopping=WORSE)
    before = load_file(folder / "model.safetensors")
    for name in ("model.safetensors", "summary.json"):
        (folder / name).unlink()
    trained("early", 20, early_stopping=WORSE)
    assert summary_in(folder)["steps"] == 6
    assert all(tensor.equal(before[name]) for name, tensor in load_file(folder / "model.safetensors").items())


def test_averaged_weights_are_restored_as_they_were(trained) -> None:
    ema = {"ema": {"decay": 0.5}}
    assert same(trained("early", 20, early_stopping=WORSE, **ema)[0], trained("two", 2, **ema)[0])


def test_a_damaged_best_checkpoint_is_named(trained) -> None:
    folder, _ = trained("early", 20, early_stopping=WORSE)
    file = folder / "checkpoints" / "step-00000002" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(DataError, match="damaged tensor"):
        trained("early", 20, early_stopping=WORSE)


def test_a_metric_that_is_not_measured_is_named(trained) -> None:
    with pytest.raises(RecipeError, match="measures nothing of this name") as caught:
        trained("odd", 20, early_stopping={"by": "max acuracy", "restore_best": False})
    assert caught.value.where == "train.early_stopping.by"
