"""The recipe: family defaults against Hugging Face's own, consistency between sections, identity without exec."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainwright.core.config.load import load
from trainwright.core.errors import RecipeErrors
from trainwright.pipeline.presets import presets
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.recipe import Recipe

RECIPES = Path(__file__).parents[3] / "recipes"
BASE = {"name": "x", "model": {"layers": 2, "width": 64, "heads": 4}, "data": {"sources": [{"kind": "python-stdlib"}]}}


def recipe(**sections) -> Recipe:
    return Recipe.model_validate(BASE | sections)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_we_ship_is_valid_and_short(path) -> None:
    loaded = load(Recipe, files=[path], preset=None, overrides=[], environ={})
    assert loaded.value.name == path.stem
    assert len(path.read_text().splitlines()) <= 80


@pytest.mark.parametrize(
    ("name", "vocabulary", "parameters"),
    [("gpt2-124m", 50257, 124_439_808), ("tinyllama-1b", 32000, 1_100_048_384), ("llama-7b", 32000, 6_738_415_616)],
)
def test_presets_have_their_published_sizes(tmp_path, name, vocabulary, parameters) -> None:
    """The counts that Hugging Face prints for the published checkpoints."""
    own = tmp_path / "own.yaml"
    own.write_text("name: x\ndata: {sources: [{kind: python-stdlib}]}\n")
    loaded = load(Recipe, files=[own], preset=presets()[name], overrides=[], environ={})
    assert total_parameters(loaded.value.model.spec(vocabulary=vocabulary)) == parameters


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"train": {"sequence_tokens": 2048, "batch_tokens": 4096}}, "exceeds model.context_tokens"),
        ({"name": "a b"}, "letters, digits"),
        ({"name": "a" * 201}, "at most 200 bytes.* 201"),
        ({"name": "模" * 67}, "at most 200 bytes.* 201"),
        ({"data": {"sources": [{"kind": "python-stdlib"}], "exec": {"workers": 0}}}, "greater than 0"),
    ],
)
def test_impossible_recipes_say_why(sections, part) -> None:
    with pytest.raises((ValidationError, RecipeErrors), match=part):
        recipe(**sections)


def test_exec_is_no_part_of_the_identity() -> None:
    one = recipe(train={"exec": {"micro_batch": 4, "threads": 1}})
    other = recipe(train={"exec": {"micro_batch": 8, "log_every_steps": 1}})
    assert one.identity("train") == other.identity("train")
    assert "exec" not in one.identity("data")
    assert recipe(train={"clip_norm": None}).identity("train") != one.identity("train")


@pytest.mark.parametrize(
    ("task", "family", "message"),
    [
        ("next-token", "bert", r"next-token needs .* another kind: decoder; bert is: encoder"),
        ("next-token", "roberta", r"next-token needs .* another kind: decoder; roberta is: encoder"),
        ("masked", "llama", r"masked needs .* another kind: encoder; llama is: decoder"),
    ],
)
def test_a_task_is_learnt_by_networks_that_can(task, family, message) -> None:
    record = {
        "name": "tiny",
        "task": {"name": task},
        "model": {"family": family, "layers": 2, "width": 16, "heads": 2},
        "data": {"sources": [{"kind": "python-stdlib"}]},
    }
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate(record)


PICTURES = {
    "name": "x",
    "task": {"name": "classify-images", "labels": ["a", "b"], "shift": 2},
    "model": {"family": "vit", "layers": 1, "width": 16, "heads": 2, "image_size": 8, "patch_size": 4},
    "data": {"sources": [{"kind": "images", "paths": ["x"]}], "images": {"size": 8}},
    "train": {"sequence_tokens": 5, "batch_tokens": 10},
}


def test_a_recipe_of_images_has_a_head_for_its_classes_and_counts_images_by_their_tokens() -> None:
    loaded = Recipe.model_validate(PICTURES)
    spec = loaded.model_spec(vocabulary=256)
    assert (spec.classes, spec.labels, spec.vocabulary, spec.context_tokens) == (2, ("a", "b"), 0, 5)
    assert (loaded.task.shift, loaded.task.flip, loaded.data.labelled) == (2, False, True)
    assert loaded.epoch_tokens(tokens=7 * 192, documents=7) == 35
    assert Recipe.model_validate(loaded.model_dump()) == loaded


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"image_size": 12}}, r"model.image_size \(12\) is not data.images.size \(8\)"),
        ({"model": {"patch_size": 3}}, r"image_size \(8\) must be a multiple of patch_size \(3\)"),
        ({"train": {"sequence_tokens": 2}}, "write train.sequence_tokens: 5"),
        ({"task": {"name": "next-token", "labels": [], "shift": None}}, "sees images, and the task next-token reads"),
        ({"data": {"images": None}}, "nothing says how large"),
        ({"data": {"tokenizer": {"vocabulary": 300}}}, "tokenizer is for texts"),
        ({"data": {"chat": {"template": "turns"}}}, "chat goes with sources of chats"),
        ({"data": {"sources": [{"kind": "python-stdlib"}]}}, "images goes with sources of images"),
        ({"data": {"sources": [{"kind": "python-stdlib"}], "images": None}}, "give documents, and the task"),
        ({"model": {"family": "llama", "image_size": None, "patch_size": None}}, "needs a network of another kind"),
    ],
)
def test_images_their_network_and_their_task_must_fit(sections, message) -> None:
    kept = dict(PICTURES)
    for name, keys in sections.items():
        kept[name] = {key: value for key, value in (PICTURES[name] | keys).items() if value is not None}
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate(kept)
