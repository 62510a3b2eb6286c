"""``model.mup``: constants by hand, and what is refused by name."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.parts.scales import NO_SCALES
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection

SHAPE = {"layers": 2, "width": 256, "heads": 4}


def scales_of(mup, **keys):
    return ModelSection.model_validate(SHAPE | {"mup": mup} | keys).spec(vocabulary=64).scales


def test_logits_are_divided_by_the_ratio_of_widths():
    assert scales_of({"base_width": 64}).logits_divisor == 4.0
    assert scales_of({"base_width": 512}).logits_divisor == 0.5
    assert scales_of({"base_width": 64}, scales={"logits_divisor": 3.0}).logits_divisor == 12.0


def test_scores_of_wider_heads_are_divided_by_their_size_in_place_of_its_root():
    assert scales_of({"base_width": 64}).attention is None, "as many numbers in a head: 1/sqrt(64)"
    assert scales_of({"base_width": 64, "base_head_size": 16}).attention == 4 / 64, "sqrt(16) / 64"
    written = scales_of({"base_width": 64, "base_head_size": 16}, scales={"attention": 0.5})
    assert written.attention == 0.5 / 4, "the base's 0.5, over heads four times as large"


def test_the_base_itself_has_no_scale():
    assert scales_of({"base_width": 256, "base_head_size": 64}) == NO_SCALES
    assert ModelSection.model_validate(SHAPE | {"mup": {"base_width": 256}}).width_ratio == 1.0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"family": "gemma"}, "not gemma"),
        ({"family": "bloom"}, "not bloom"),
        ({"family": "bert"}, "not bert"),
        ({"family": "mixtral", "experts": {"count": 4, "active": 2, "ffn_width": 64}}, "not mixtral"),
        ({"init_from": "somewhere"}, "init_from"),
        ({"mup": {}}, "base_width"),
        ({"mup": {"base_width": 0}}, "base_width"),
    ],
)
def test_a_network_that_cannot_follow_is_refused_by_name(keys, words):
    with pytest.raises((ValueError, RecipeError), match=words):
        ModelSection.model_validate(SHAPE | {"mup": {"base_width": 64}} | keys)


LABELLED = {"kind": "jsonl", "paths": ["a.jsonl"], "label_key": "label"}


@pytest.mark.parametrize(
    ("train", "task", "words"),
    [
        ({"optimizer": {"name": "muon"}}, {}, "muon has other rules of width than adamw and adam"),
        ({"optimizer": {"name": "sgd"}}, {}, "sgd has other rules"),
        ({"optimizer": {"name": "adam", "weight_decay": 0.1}}, {}, "penalty in the gradient"),
        (
            {"optimizer": {"name": "adam", "groups": [{"match": "blocks.*", "weight_decay": 0.1}]}},
            {},
            "penalty in the gradient",
        ),
        ({"loss": {"l2_weight": 0.1}}, {}, "penalty in the gradient"),
        ({"method": {"name": "lora"}}, {}, "adapters have rates of their own"),
        ({}, {"name": "classify", "labels": ["a", "b"]}, "the task classify has another head"),
        ({}, {"name": "regress"}, "the task regress has another head"),
    ],
)
def test_a_training_that_cannot_follow_is_refused_by_name(train, task, words):
    source = LABELLED if task else {"kind": "python-stdlib"}
    source = source | ({"label_kind": "number"} if task.get("name") == "regress" else {})
    recipe = {"name": "wide", "model": SHAPE | {"mup": {"base_width": 64}}, "data": {"sources": [source]}}
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate(recipe | {"train": train} | ({"task": task} if task else {}))


def test_adam_without_a_penalty_follows():
    recipe = {
        "name": "wide",
        "model": SHAPE | {"mup": {"base_width": 64}},
        "data": {"sources": [{"kind": "python-stdlib"}]},
    }
    assert Recipe.model_validate(recipe | {"train": {"optimizer": {"name": "adam"}}}).model.width_ratio == 4.0
