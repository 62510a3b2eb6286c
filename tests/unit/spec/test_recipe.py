"""The recipe: family defaults against Hugging Face's own, consistency between sections, identity without exec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainwright.cli.arguments import presets
from trainwright.core.config import load
from trainwright.core.errors import RecipeErrors
from trainwright.planner.parameters import total_parameters
from trainwright.spec.recipe import ModelSection, Recipe

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


def test_gpt2_defaults_are_those_of_gpt2() -> None:
    from transformers import GPT2Config

    theirs = GPT2Config()
    section = ModelSection(family="gpt2", layers=12, width=768, heads=12, context_tokens=1024)
    ours = section.spec(vocabulary=theirs.vocab_size)
    assert (ours.ffn_width, ours.tied, ours.bias, ours.norm) == (4 * theirs.n_embd, True, True, "layernorm")
    assert ours.norm_epsilon == theirs.layer_norm_epsilon


def test_llama_defaults() -> None:
    spec = ModelSection(layers=32, width=4096, heads=32).spec(vocabulary=32000)
    assert spec.ffn_width == 10944, "8/3 of the width, up to a multiple of 64 (Llama-7B rounds to 256: 11,008)"
    assert (spec.gated, spec.norm, spec.positions, spec.bias, spec.tied) == (True, "rmsnorm", "rope", False, False)


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"model": {"layers": 2, "width": 65, "heads": 4}}, "nearest that does: heads=5"),
        ({"model": {"layers": 2, "width": 10**15 + 37, "heads": 1000}}, "nearest that does: heads="),
        ({"model": {"layers": 2, "width": 10, "heads": 99}}, "nearest that does: heads=10"),
        ({"model": {"layers": 2, "width": 64, "heads": 4, "kv_heads": 3}}, "multiple of kv_heads"),
        ({"train": {"sequence_tokens": 2048, "batch_tokens": 4096}}, "exceeds model.context_tokens"),
        ({"train": {"sequence_tokens": 100, "batch_tokens": 250}}, "nearest that is: 200"),
        ({"train": {"duration": "5"}}, "unknown unit of duration"),
        ({"train": {"duration": "5 parsecs"}}, "unknown unit of duration"),
        ({"name": "a b"}, "letters, digits"),
        ({"train": {"optimizer": {"betas": [2, 0.9]}}}, "less than 1"),
        ({"train": {"exec": {"micro_batch": 0}}}, "greater than 0"),
        ({"train": {"exec": {"threads": -1}}}, "greater than 0"),
        ({"data": {"sources": [{"kind": "python-stdlib"}], "exec": {"workers": 0}}}, "greater than 0"),
    ],
)
def test_impossible_recipes_say_why(sections, part) -> None:
    with pytest.raises((ValidationError, RecipeErrors), match=part):
        recipe(**sections)


@given(width=st.integers(1, 300), heads=st.integers(1, 400))
def test_the_number_of_heads_that_is_proposed_is_the_nearest(width, heads) -> None:
    if width % heads:
        with pytest.raises(ValidationError) as caught:
            ModelSection(family="gpt2", layers=1, width=width, heads=heads)
        proposed = int(re.search(r"heads=(\d+)", str(caught.value))[1])
        divisors = [number for number in range(1, width + 1) if width % number == 0]
        assert proposed == min(divisors, key=lambda number: abs(number - heads))


def test_exec_is_no_part_of_the_identity() -> None:
    one = recipe(train={"exec": {"micro_batch": 4, "threads": 1}})
    other = recipe(train={"exec": {"micro_batch": 8, "log_every_steps": 1}})
    assert one.identity("train") == other.identity("train")
    assert "exec" not in one.identity("data")
    assert recipe(train={"clip_norm": None}).identity("train") != one.identity("train")


def test_durations_keep_the_user_s_words() -> None:
    assert recipe(train={"duration": "20 tok/param"}).train.duration == "20 tok/param"
    assert recipe(train={"batch_tokens": "64k", "sequence_tokens": 1000}).train.batch_tokens == 64_000
