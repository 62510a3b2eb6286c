from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.evaluate import EvaluateSection


def test_nothing_is_asked_unless_the_recipe_says_so():
    section = EvaluateSection()
    assert (section.prompts, section.questions, section.benchmarks) == ((), None, None)


def test_benchmarks_are_all_examples_as_the_task_has_them():
    benchmarks = EvaluateSection.model_validate({"benchmarks": {"tasks": ["piqa"]}}).benchmarks
    assert (benchmarks.include, benchmarks.few_shot, benchmarks.limit) == (None, None, None)


@pytest.mark.parametrize(
    "wrong", [{"tasks": []}, {"tasks": ["piqa"], "limit": 0}, {"tasks": ["piqa"], "few_shot": -1}, {"limit": 3}]
)
def test_benchmarks_of_nothing_are_refused(wrong):
    with pytest.raises(ValidationError):
        EvaluateSection.model_validate({"benchmarks": wrong})
