"""Which step a command is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.core.errors import RecipeError
from trainwright.pipeline.graph import STAGES, Need
from trainwright.pipeline.steps import named, steps, to_optimize, with_step, with_trained_model
from trainwright.spec.sections.steps import StepSection
from trainwright.spec.sections.task import TaskSection


@pytest.fixture
def make(tmp_path):
    """The planned recipe with this list of steps."""

    def recipe(*listed: dict):
        sections = tuple(StepSection.model_validate(each) for each in listed)
        return planned_recipe(tmp_path).model_copy(update={"stages": sections or None})

    return recipe


BASE, TUNED = {"stage": "train", "name": "base"}, {"stage": "train", "name": "tuned", "from": "base"}


def test_the_only_step_of_a_stage_needs_no_name(make) -> None:
    assert named(make(), stage="train", step=None).name == "train"
    assert named(make(BASE), stage="train", step=None).name == "base"
    assert named(make(BASE), stage="data", step=None).name == "data", "though nobody listed it"


def test_of_several_one_has_to_be_named(make) -> None:
    recipe = make(BASE, TUNED)
    with pytest.raises(RecipeError, match=r"several steps of the stage train \(seen base, tuned\); say which"):
        named(recipe, stage="train", step=None)
    assert named(recipe, stage="train", step="base").name == "base"


def test_a_name_of_another_stage_or_of_nothing_is_refused(make) -> None:
    with pytest.raises(
        RecipeError, match=r"--step: the step base is of another stage \(seen train, expected export\)$"
    ):
        named(make(BASE), stage="export", step="base")
    with pytest.raises(
        RecipeError, match=r"the step data is of another stage \(seen data, expected one of base, more\)$"
    ):
        named(make(BASE, {"stage": "train", "name": "more"}), stage="train", step="data")
    with pytest.raises(RecipeError, match="did you mean 'base'"):
        named(make(BASE), stage="train", step="bas")
    with pytest.raises(RecipeError, match=r"stages: no step of this recipe has the stage export; add"):
        named(make(BASE), stage="export", step=None)


def test_a_printed_step_of_another_stage_stands_for_the_one_that_it_belongs_to(make) -> None:
    recipe = make(BASE, {**TUNED, "data": {"clean": {"min_characters": 2}}, "train": {"duration": "9 steps"}})
    printed = [step.name for step in steps(recipe)]
    assert {"tuned.plan", "tuned.data"} <= set(printed)
    for name in ("tuned.plan", "tuned.data", "tuned"):
        assert named(recipe, stage="train", step=name).name == "tuned"
    assert named(recipe, stage="data", step="tuned").name == "tuned.data"


def test_a_stage_that_the_list_lacks_can_be_put_at_its_end(make) -> None:
    report = steps(with_step(make(BASE, TUNED), stage="report"))[-1]
    assert report.stage.name == "report"
    assert report.inputs == {"machine": "doctor", "plan": "plan", "dataset": "data", "checkpoint": "tuned"} or (
        report.inputs["checkpoint"] == "tuned" and set(report.inputs) <= {"machine", "plan", "dataset", "checkpoint"}
    )
    assert with_step(make(), stage="report").stages is None


def test_a_stage_with_an_input_that_only_a_list_names_stands_in_lists_alone(make, monkeypatch) -> None:
    usual = steps(make())
    compress = replace(STAGES["train"], name="compress", needs={"base": Need(kind="checkpoint")})
    monkeypatch.setattr("trainwright.pipeline.steps.STAGES", {**STAGES, "compress": compress})
    assert steps(make()) == usual, "nobody says which checkpoint it compresses"
    optional = replace(compress, needs={"base": Need(kind="checkpoint", optional=True)})
    monkeypatch.setattr("trainwright.pipeline.steps.STAGES", {**STAGES, "compress": optional})
    assert [step.name for step in steps(make())] == [*(step.name for step in usual), "compress"]


@pytest.mark.parametrize("task", ["classify", "fixtures.plugged_task:TOPICS"])
def test_what_writes_no_text_is_not_served(make, task) -> None:
    recipe = make()
    assert "serve" in [step.name for step in steps(recipe)]
    classifies = recipe.model_copy(update={"task": TaskSection(name=task, labels=("a", "b"))})
    line = steps(classifies)
    assert [step.name for step in line] == [step.name for step in steps(recipe) if step.name != "serve"]
    assert all("serve" not in step.inputs.values() for step in line)


def test_a_step_that_names_no_input_follows_the_training_before_it(make) -> None:
    longer = {"stage": "train", "model": {"context_tokens": 4096}, "task": {"name": "next-token"}}
    longer["train"] = {"duration": "9 steps"}
    line = steps(make(longer, {"stage": "export"}, {"stage": "evaluate"}))
    by_name = {step.name: step for step in line}
    for name in ("export", "evaluate"):
        assert by_name[name].recipe.model.context_tokens != 4096
        assert with_trained_model(by_name[name], line).model.context_tokens == 4096
        assert with_trained_model(by_name[name], line).train.duration == "9 steps"
    assert with_trained_model(by_name["data"], line) is by_name["data"].recipe, "it follows from no training"
    tuned = {**TUNED, "train": {"duration": "9 steps"}}
    line = steps(make(BASE, tuned, {"stage": "export", "from": "tuned", "export": {"formats": ["huggingface"]}}))
    assert with_trained_model(line[-1], line) == line[-1].recipe


def test_a_ladder_is_climbed_where_it_is_asked_for_alone(make) -> None:
    assert "optimize" not in {each.name for each in steps(make())}
    recipe, name = to_optimize(make(), step=None)
    line = steps(recipe)
    assert name == "optimize-train"
    assert [each.stage.name for each in line] == ["data", "doctor", "optimize"]
    assert {role for each in line if each.name == name for role in each.inputs} == {"dataset", "machine"}


def test_the_ladder_of_a_step_has_its_keys_and_its_base(make) -> None:
    recipe, name = to_optimize(make(BASE, {**TUNED, "train": {"duration": "9 steps"}}), step="tuned")
    (ladder,) = (each for each in steps(recipe) if each.name == name)
    assert ladder.recipe.train.duration == "9 steps"
    assert ladder.inputs["base"] == "base"
    with pytest.raises(RecipeError, match="say which, for example --step tuned"):
        to_optimize(make(BASE, TUNED), step=None)


def test_a_listed_ladder_is_taken_as_it_is(make) -> None:
    listed = make(BASE, {"stage": "optimize", "optimize": {"steps": 30}})
    recipe, name = to_optimize(listed, step=None)
    assert recipe is listed and name == "optimize"
    assert [each.recipe.optimize.steps for each in steps(recipe) if each.name == name] == [30]
