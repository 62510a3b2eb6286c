"""The order of the ladder, what it keeps, and what an interruption leaves: on a machine that a test makes up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.config.load import load as load_config
from trainwright.core.errors import DoesNotFit, TrainingError
from trainwright.core.records import from_json, to_json
from trainwright.hardware.machine.record import FILE as MACHINE_FILE
from trainwright.hardware.machine.record import machine_text
from trainwright.planner.evidence.ladder import FILE, TUNED_FILE, Ladder, Measurement
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts
from trainwright.stages.optimize import stage
from trainwright.stages.optimize.techniques import NAIVE
from trainwright.stages.plan.build import build_plan
from trainwright.testing.artifacts import make_artifact, make_dataset
from trainwright.testing.machine import fake_machine

MACHINE = fake_machine()
SPEED = {"micro_batch": 1.25, "bf16": 2.0, "compile": 0.8, "fused": 1.5, "recompute": 0.75}


def factor(recipe: dict) -> float:
    """How many times as fast as the naive one a configuration is on the machine of these tests; its auto compiles."""
    train = Recipe.model_validate(recipe).train
    how = train.exec
    found = SPEED["bf16"] if train.precision in ("bf16", "auto") else 1.0
    found *= SPEED["micro_batch"] if how.micro_batch != 1 else 1.0
    found *= SPEED["compile"] if how.compile else 1.0
    found *= SPEED["fused"] if how.update == "fused" else 1.0
    found *= SPEED.get(how.attention, 1.0)
    return found * (SPEED["recompute"] if train.recompute == "full" else 1.0)


def written(folder) -> Recipe:
    """The tuned recipe, as a person loads it."""
    return load_config(Recipe, files=[folder / "out" / TUNED_FILE], preset=None, overrides=[], environ={}).value


class Lab:
    """Measures what ``factor`` says; ``fails`` and ``stops`` are the numbers of calls that end otherwise."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.fails: frozenset[int] = frozenset()
        self.stops: frozenset[int] = frozenset()

    def measure(self, request, *, say) -> Measurement:
        self.calls.append(request)
        if len(self.calls) in self.stops:
            raise KeyboardInterrupt
        if len(self.calls) in self.fails:
            raise TrainingError("this configuration cannot be trained here", seen="no compiler")
        say(request["steps"])
        seconds = 8.0 / factor(request["recipe"])
        return Measurement(
            step_s=tuple(seconds * (1 + 1e-3 * place) for place in range(request["steps"])),
            losses=(5.0, 4.0),
            step_tokens=256,
            memory_bytes=1e9,
            start_s=0.0,
            phases=PhaseTimes(forward=seconds),
        )


@pytest.fixture
def lab(monkeypatch) -> Lab:
    lab = Lab()
    monkeypatch.setattr(stage, "measure", lab.measure)
    return lab


@pytest.fixture
def climb(tmp_path):
    """Runs the stage in one folder, as often as it is called; the pipeline around it plans on the ideal machine."""
    machine = make_artifact(tmp_path / "machine", "doctor", {MACHINE_FILE: machine_text(MACHINE)})
    dataset = make_dataset(tmp_path / "data", {"train": ["alpha beta"] * 50})
    plans: dict[str, object] = {}

    def run(recipe, refuse=lambda recipe: None):
        def child_runs(recipe, *, upto, told):
            refuse(recipe)
            assert upto == "plan" and not told
            key = recipe.model_dump_json()
            if key not in plans:
                plan = build_plan(recipe, MACHINE, DatasetFacts(vocabulary=300))
                files = {"plan.json": json.dumps(to_json(plan)).encode()}
                plans[key] = make_artifact(tmp_path / "plans" / str(len(plans)), "plan", files)
            return {"plan": plans[key]}

        out, said = tmp_path / "out", []
        out.mkdir(exist_ok=True)
        listeners = (lambda event: said.append(event.text) if event.kind == "message" else None,)
        with Events(None, run="tiny", listeners=listeners) as events:
            inputs = {"machine": machine, "dataset": dataset}
            context = Context(
                recipe=recipe, out=out, events=events, root=tmp_path, inputs=inputs, child_runs=child_runs
            )
            result = stage.run(context)
        return from_json(Ladder, json.loads((out / FILE).read_text()), where=FILE), result, said

    return run


def test_what_helps_is_kept_and_the_next_technique_builds_on_it(climb, lab, make_recipe) -> None:
    ladder, result, said = climb(make_recipe())
    assert [rung.technique for rung in ladder.kept] == ["micro-batch", "bf16", "fused-update"]
    assert ladder.gain.mid == pytest.approx(1.25 * 2.0 * 1.5, rel=1e-3)
    assert ladder.gain.low < ladder.gain.mid < ladder.gain.high
    assert result.summary["kept"] == ["micro-batch", "bf16", "fused-update"]
    by_name = {rung.technique: rung for rung in ladder.rungs}
    assert by_name["compile"].gain.mid == pytest.approx(0.8, rel=1e-3)
    assert by_name["compile"].reason == "slower"
    assert by_name["attention"].reason == "no difference that 8 updates show"
    assert "one chunk" in by_name["chunked-loss"].reason and by_name["chunked-loss"].before is None
    last = by_name["recompute"]
    assert last.before.median_s == pytest.approx(8.0 / 3.75, rel=1e-2), "measured on all that was kept"
    assert len(lab.calls) == 3 * 6 + 3 and len(said) == 10
    assert said[1].startswith("bf16: 2.00x (") and "predicted" in said[1] and ": kept: forward" in said[1]


def test_each_technique_is_measured_between_two_measurements_without_it(climb, lab, make_recipe) -> None:
    climb(make_recipe(optimize={"techniques": ["bf16", "fused-update"], "warmup_steps": 2}))
    trains = [Recipe.model_validate(call["recipe"]).train for call in lab.calls]
    written = [(train.precision, train.exec.update) for train in trains]
    once, twice = ("fp32", "loop"), ("bf16", "loop")
    assert written[:6] == [once, twice, once, twice, ("bf16", "fused"), twice]
    assert {(call["warmup_steps"], call["steps"]) for call in lab.calls} == {(2, 8)}


def test_predictions_are_those_of_the_plan_of_each_recipe(climb, lab, make_recipe) -> None:
    ladder, _, _ = climb(make_recipe(optimize={"techniques": ["bf16"]}))
    (rung,) = ladder.rungs
    plans = [
        build_plan(Recipe.model_validate(call["recipe"]), MACHINE, DatasetFacts(vocabulary=300))
        for call in lab.calls[:2]
    ]
    speeds = [plan.estimate.tokens_per_s for plan in plans]
    assert rung.predicted.tokens_per_s == speeds[1]
    assert rung.predicted_gain == pytest.approx(speeds[1] / speeds[0])
    assert rung.predicted.memory_bytes == plans[1].estimate.memory.total_bytes
    assert ladder.predicted_gain == pytest.approx(rung.predicted_gain)


def test_a_ladder_that_was_interrupted_goes_on_with_the_same_technique(climb, lab, make_recipe, tmp_path) -> None:
    lab.stops = frozenset({5})
    with pytest.raises(KeyboardInterrupt):
        climb(make_recipe())
    saved = sorted(path.name for path in (tmp_path / "out" / "rungs").iterdir())
    assert saved == ["0-micro-batch.json"]
    before = (tmp_path / "out" / "rungs" / saved[0]).read_bytes()
    lab.stops, done = frozenset(), len(lab.calls)
    ladder, _, said = climb(make_recipe())
    assert len(lab.calls) - done == 3 * 5 + 3, "bf16 is measured again from its first part, micro-batch is not"
    assert lab.calls[done]["recipe"]["train"]["precision"] == "fp32"
    assert lab.calls[done]["recipe"]["train"]["exec"]["micro_batch"] > 1, "what was kept before is built on"
    assert (tmp_path / "out" / "rungs" / saved[0]).read_bytes() == before
    assert [rung.technique for rung in ladder.kept] == ["micro-batch", "bf16", "fused-update"]
    assert said[0].startswith("bf16")


def test_a_damaged_file_of_an_earlier_run_is_said_and_measured_again(climb, lab, make_recipe, tmp_path) -> None:
    whole, _, _ = climb(make_recipe())
    rungs, done = tmp_path / "out" / "rungs", len(lab.calls)
    (rungs / "1-bf16.json").write_text("garbage")
    ladder, _, said = climb(make_recipe())
    assert "1-bf16.json" in said[0] and said[0].startswith("measured again, for the file of an earlier run is damaged")
    assert said[1].startswith("bf16: 2.00x")
    assert len(lab.calls) - done == 3 + 3, "that rung, and the last comparison; the others stand"
    assert to_json(ladder) == to_json(whole)
    (rungs / "given.json").write_text('{"chosen": "nobody"}')
    again, _, said = climb(make_recipe())
    assert "given.json" in said[0] and to_json(again) == to_json(whole)


def test_what_rests_on_another_decision_is_measured_again(climb, lab, make_recipe, tmp_path, monkeypatch) -> None:
    recipe = make_recipe(optimize={"techniques": ["bf16", "fused-update"]})
    climb(recipe)
    done = len(lab.calls)
    (tmp_path / "out" / "rungs" / "0-bf16.json").write_text("")
    monkeypatch.setitem(SPEED, "bf16", 0.5)
    ladder, _, _ = climb(recipe)
    assert [rung.technique for rung in ladder.kept] == ["fused-update"]
    assert Recipe.model_validate(lab.calls[done + 3]["recipe"]).train.precision == "fp32", "no longer on bf16"


def test_a_technique_that_cannot_be_trained_is_passed_over(climb, lab, make_recipe) -> None:
    lab.fails = frozenset({2})
    ladder, _, _ = climb(make_recipe(optimize={"techniques": ["compile", "bf16"]}))
    first, second = ladder.rungs
    assert not first.kept and "no compiler" in first.reason and first.gain is None
    assert second.kept


def test_what_cannot_be_trained_at_all_is_an_error(climb, lab, make_recipe) -> None:
    lab.fails = frozenset({1})
    with pytest.raises(TrainingError, match="no compiler"):
        climb(make_recipe())


def test_where_the_naive_configuration_does_not_fit_it_begins_with_recomputation(climb, lab, make_recipe) -> None:
    def short_of_memory(recipe):
        if recipe.train.recompute == "none":
            raise DoesNotFit("the run does not fit in memory")

    ladder, _, _ = climb(make_recipe(optimize={"techniques": ["bf16", "recompute"]}), refuse=short_of_memory)
    assert ladder.start == dict(NAIVE) | {"train.recompute": "full"}
    bf16, recompute = ladder.rungs
    assert bf16.kept
    assert not recompute.kept and "does not fit" in recompute.reason


def test_the_tuned_recipe_is_the_authors_with_what_was_decided(climb, lab, make_recipe, tmp_path) -> None:
    recipe = make_recipe(batch_tokens=512, schedule={"name": "linear"})
    ladder, _, _ = climb(recipe)
    tuned = written(tmp_path)
    assert tuned.train.precision == "bf16"
    assert tuned.train.exec.micro_batch == ladder.tuned["train.exec.micro_batch"] > 1
    assert tuned.train.exec.compile is False, "slower: the planner is not left to choose it"
    assert (tuned.train.exec.update, tuned.train.exec.attention) == ("fused", "auto"), "as it was"
    assert tuned.train.exec.loss_chunk_tokens == recipe.train.exec.loss_chunk_tokens == "auto"
    assert (tuned.train.batch_tokens, tuned.train.schedule.name) == (512, "linear")
    assert tuned.model == recipe.model and tuned.data == recipe.data


def test_what_was_not_tried_or_not_told_from_noise_stays_as_the_recipe_had_it(
    climb, lab, make_recipe, tmp_path
) -> None:
    how = {"compile": False, "micro_batch": 2, "update": "foreach"}
    recipe = make_recipe(precision="bf16", exec=how, optimize={"techniques": ["attention", "chunked-loss"]})
    ladder, _, _ = climb(recipe)
    assert not ladder.kept and ladder.tuned == {} and ladder.given is None, "there is nothing to measure beside it"
    assert written(tmp_path).train == recipe.train
    assert len(lab.calls) == 3


def test_the_recipe_as_given_is_measured_beside_the_tuned_one(climb, lab, make_recipe) -> None:
    """What it has in place of each naive value is in neither row above."""
    ladder, result, said = climb(make_recipe())
    given = ladder.given
    assert given.chosen == "tuned"
    assert given.before.median_s == pytest.approx(8.0 / (1.25 * 2.0 * 0.8 * 1.5), rel=1e-2)
    assert given.gain.mid == result.summary["over_given"] == pytest.approx(1 / 0.8, rel=1e-3)
    assert said[-1].startswith("as given: what was decided is 1.25x as fast (")


def test_a_tuned_recipe_that_is_slower_than_the_given_one_is_not_written(
    climb, lab, make_recipe, tmp_path, monkeypatch
) -> None:
    """Compiled code is slower in the naive configuration, and faster in the author's."""
    recipe = make_recipe(exec={"compile": True}, optimize={"techniques": ["compile"]})
    monkeypatch.setitem(SPEED, "fused", 1.0)
    monkeypatch.setattr(stage, "measure", lambda request, *, say: _with_odd_compiler(lab, request, say))
    ladder, _, said = climb(recipe)
    assert ladder.rungs[0].reason == "slower"
    assert ladder.given.chosen == "given" and ladder.given.gain.high < 1
    assert "the recipe stays as it was given" in said[-1]
    assert written(tmp_path).train == recipe.train


def test_a_tuned_recipe_that_learns_otherwise_than_the_given_one_is_not_taken(
    climb, lab, make_recipe, tmp_path, monkeypatch
) -> None:
    """Each technique alone changes nothing; all together, as only the last comparison has them, they do."""
    recipe = make_recipe(exec={"update": "foreach"}, optimize={"techniques": ["bf16", "fused-update"]})

    def measured(request, *, say):
        found, train = lab.measure(request, say=say), Recipe.model_validate(request["recipe"]).train
        together = train.exec.update == "fused" and train.exec.compile == "auto"
        return replace(found, losses=(5.2, 4.0)) if together else found

    monkeypatch.setattr(stage, "measure", measured)
    ladder, _, said = climb(recipe)
    assert ladder.given.loss_difference == pytest.approx(0.2 / 5.0)
    assert ladder.given.tolerance == pytest.approx(sum(rung.tolerance for rung in ladder.kept))
    assert ladder.given.chosen == "given" and ladder.tuned == {}
    assert "the loss of what was decided differs by 4.0e-02, more than the 2e-02" in said[-1]
    assert written(tmp_path).train == recipe.train


def _with_odd_compiler(lab, request, say):
    compiled = Recipe.model_validate(request["recipe"]).train.exec
    found = lab.measure(request, say=say)
    if compiled.compile is True and compiled.update == "fused":
        return replace(found, step_s=tuple(each / 4 for each in found.step_s))
    return found


def test_a_ladder_of_no_technique_is_refused_in_one_line(make_recipe) -> None:
    with pytest.raises(ValidationError, match="names no technique: write all, or a list") as raised:
        make_recipe(optimize={"techniques": []})
    assert raised.value.error_count() == 1


def test_a_technique_that_is_named_twice_is_refused_in_one_line(make_recipe) -> None:
    with pytest.raises(ValidationError, match="names one twice: write all, or a list") as raised:
        make_recipe(optimize={"techniques": ["bf16", "compile", "bf16"]})
    assert raised.value.error_count() == 1
