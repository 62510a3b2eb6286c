"""A step of the list: its name, and which of its keys are laid over which section."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.steps import SECTIONS, StepSection


def step(**keys) -> StepSection:
    return StepSection.model_validate({"stage": "train"} | keys)


def test_a_step_is_called_like_its_stage_unless_it_has_a_name() -> None:
    assert (step().title, step(name="tuned").title) == ("train", "tuned")


def test_overrides_are_the_sections_that_were_written() -> None:
    assert step(train={"optimizer": {"lr": 1}}, data={}).overrides == {"train": {"optimizer": {"lr": 1}}, "data": {}}
    assert step(**{"from": "base"}).goes_on_from == "base"


def test_every_section_of_the_recipe_can_be_overridden() -> None:
    assert set(SECTIONS) == set(Recipe.model_fields) - {"name", "seed", "stages"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"stage": "trian"}, "no such stage .seen 'trian'.*did you mean 'train'"),
        ({"name": "a.b"}, "letters, digits"),
        ({"name": "a/b"}, "letters, digits"),
        ({"form": "base"}, "Extra inputs"),
        ({"goes_on_from": "base"}, "Extra inputs"),
    ],
)
def test_what_is_refused(keys, message) -> None:
    with pytest.raises(ValidationError, match=message):
        step(**keys)
