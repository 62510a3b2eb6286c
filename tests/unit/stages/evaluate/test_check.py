"""An evaluation of splits that will not be there is refused, with advice that the recipe takes."""

from __future__ import annotations

import re

from fixtures.planned_recipe import planned_recipe
from trainwright.stages.evaluate.check import problems


def test_the_usual_splits_are_there(tmp_path) -> None:
    assert list(problems(planned_recipe(tmp_path), None)) == []


def test_the_advice_can_be_followed(tmp_path) -> None:
    shares = "data.split={train: 0.9, validation: 0.0, test: 0.1}"
    (problem,) = problems(planned_recipe(tmp_path, shares), None)
    assert problem.where == "evaluate.splits" and problem.seen == "data.split.validation: 0"
    advice = re.search(r"evaluate\.splits: (\[.*?\])", problem.fix)
    assert list(problems(planned_recipe(tmp_path, shares, f"evaluate.splits={advice[1]}"), None)) == []


def test_an_empty_prompt_is_named_by_its_place(tmp_path) -> None:
    (problem,) = problems(planned_recipe(tmp_path, "evaluate.prompts=[a, '']"), None)
    assert problem.where == "evaluate.prompts.1"
