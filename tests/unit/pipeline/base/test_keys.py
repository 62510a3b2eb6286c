"""A recipe that names a base need not say what the base says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.family_parity import CASES, shape
from fixtures.hub import COMMIT, ask, serving
from fixtures.planned_recipe import planned_recipe
from fixtures.tiny_models import tokenizer, write_trained
from trainwright.core.config.load import Loaded, load
from trainwright.core.errors import RecipeErrors, TrainwrightError
from trainwright.model.build import build_network
from trainwright.pipeline.base.keys import keys_of_base
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection, keys_of

HEAD = "name: tuned\ndata: {sources: [{kind: python-stdlib}]%s}\nmodel: {init_from: %s}\ntrain: {sequence_tokens: 64}\n"


@pytest.fixture
def read(tmp_path):
    """Reads a recipe of a base, with keys of its data."""

    def read(base: Path | str, *overrides: str, data: str = "") -> Loaded[Recipe]:
        (tmp_path / "recipe.yaml").write_text(HEAD % (data and f", {data}", base))
        paths = [tmp_path / "recipe.yaml"]
        return load(Recipe, files=paths, overrides=overrides, environ={}, beneath=keys_of_base)

    return read


@pytest.fixture
def base(tmp_path):
    """A trained model of 320 tokens."""
    model = ("family=gpt2", "layers=3", "width=48", "heads=4", "context_tokens=160", "norm_epsilon=1e-6")
    recipe = planned_recipe(tmp_path, *(f"model.{key}" for key in model))
    network = build_network(recipe.model_spec(vocabulary=320))
    network.initialise(0)
    return write_trained(tmp_path / "base", network, tokenizer())


@pytest.mark.parametrize("name", CASES)
def test_every_configuration_that_is_read_is_a_section(name: str) -> None:
    theirs = shape(name)
    keys = json.loads(json.dumps(keys_of(theirs)))
    if name.startswith("phi3-longrope"):  # whose factors fit a share of the head, which the section asks for as well
        assert keys["variant"] == {"rotary_share": 0.75}
    ours = ModelSection.model_validate(keys).spec(vocabulary=theirs.vocabulary)
    assert not ours.body_differences(theirs)


def test_shape_and_tokenizer_are_those_of_the_base(read, base) -> None:
    loaded = read(base)
    model, tokens = loaded.value.model, loaded.value.data.tokenizer
    assert (model.family, model.layers, model.width, model.heads, model.context_tokens) == ("gpt2", 3, 48, 4, 160)
    assert (model.norm_epsilon, model.tied) == (1e-6, True)
    assert (tokens.kind, tokens.path, tokens.end_of_text) == ("pretrained", f"{base}/tokenizer.json", "<|endoftext|>")
    assert loaded.describe("model.width") == f"model.width = 48  (base {base})"


def test_what_is_written_stands_above_the_base(read, base) -> None:
    loaded = read(base, "model.context_tokens=64", "model.dropout.residual=0.1")
    assert (loaded.value.model.context_tokens, loaded.value.model.layers) == (64, 3)
    assert str(loaded.origins["model.context_tokens"]) == "override model.context_tokens"


@pytest.mark.parametrize("written", ["{vocabulary: 320}", "{kind: byte-bpe}"])
def test_a_recipe_that_asks_for_a_tokenizer_has_its_own(read, base, written: str) -> None:
    tokens = read(base, data=f"tokenizer: {written}").value.data.tokenizer
    assert (tokens.kind, tokens.path) == ("byte-bpe", None)


@pytest.mark.parametrize("written", ["[vocabulary]", "[{a: 1}]", "3"])
def test_what_is_no_section_is_refused_where_it_is_written(read, base, written: str) -> None:
    with pytest.raises(RecipeErrors, match=r"recipe\.yaml:2:\d+: data\.tokenizer: wrong value"):
        read(base, data=f"tokenizer: {written}")


def test_a_base_without_a_tokenizer_says_its_vocabulary_to_the_plan(read, base) -> None:
    (base / "tokenizer.json").unlink()
    tokens = read(base).value.data.tokenizer
    assert (tokens.kind, tokens.path, tokens.vocabulary) == ("byte-bpe", None, 320)


def test_the_end_of_a_text_alone_may_be_another(read, base) -> None:
    tokens = read(base, data='tokenizer: {end_of_text: "[SEP]"}').value.data.tokenizer
    assert (tokens.path, tokens.end_of_text) == (f"{base}/tokenizer.json", "[SEP]")


def test_a_base_that_cannot_be_read_is_named_where_the_recipe_leaves_its_shape_to_it(read, tmp_path) -> None:
    folder = tmp_path / "other"
    assert said(read, folder) == ("no such directory", f"{tmp_path}/recipe.yaml:3:9", str(folder))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "mistrall"}))
    what, _, seen = said(read, folder)
    assert (what, seen) == ("unknown model_type", f"{folder}/config.json: 'mistrall'")


def test_what_does_not_fit_a_base_is_blamed_on_who_wrote_it(read, base) -> None:
    with pytest.raises(RecipeErrors, match=r"^override model\.variant\.window_layers: .*numbers below layers \(3\)"):
        read(base, "model.variant.window_layers=[9]")


def test_a_base_on_the_hub_says_its_shape_before_its_weights_are_here(read, base, tmp_path, monkeypatch) -> None:
    base.rename(tmp_path / "served")
    (tmp_path / "some").mkdir()
    (tmp_path / "served").rename(tmp_path / "some" / "model")
    with serving(tmp_path) as hub:
        ask(monkeypatch, hub.address, tmp_path / "cache")
        loaded = read("hf://some/model")
        asked = tuple(hub.asked)
    assert loaded.value.model.width == 48
    assert loaded.describe("model.width") == "model.width = 48  (base hf://some/model)"
    assert str(loaded.value.data.tokenizer.path).endswith(f"snapshots/{COMMIT}/tokenizer.json")
    assert not [name for name in asked if name.endswith(".safetensors")]


def test_a_recipe_that_says_its_shape_is_read_without_its_base(read, tmp_path) -> None:
    sizes = ("model.layers=2", "model.width=64", "model.heads=2")
    assert read(tmp_path / "nowhere", *sizes).value.model.layers == 2


def test_a_recipe_without_a_base_has_to_say_its_shape(tmp_path) -> None:
    (tmp_path / "recipe.yaml").write_text((HEAD % ("", "null")).replace("init_from: null", "width: 64"))
    with pytest.raises(RecipeErrors, match=r"model\.layers"):
        load(Recipe, files=[tmp_path / "recipe.yaml"], environ={}, beneath=keys_of_base)


def said(read, base: Path) -> tuple[Any, ...]:
    """What is said of a base: problem, place, what was seen."""
    with pytest.raises(TrainwrightError) as caught:
        read(base)
    return caught.value.what, caught.value.where, caught.value.seen


def test_a_vocabulary_alone_is_what_plans_count_by_until_the_base_is_there(read, base) -> None:
    """Of a base whose tokenizer no recipe trains; of another vocabulary, or one of ours, what is written holds."""
    ours = read(base, data="tokenizer: {vocabulary: 320}").value.data.tokenizer
    assert ours.kind == "byte-bpe"
    foreign = json.loads((base / "tokenizer.json").read_text())
    foreign["model"]["vocab"]["<|endoftext|>"] = 0
    (base / "tokenizer.json").write_text(json.dumps(foreign))
    theirs, others = (read(base, data=f"tokenizer: {{vocabulary: {n}}}").value.data.tokenizer for n in (320, 321))
    assert (theirs.kind, theirs.path, theirs.vocabulary) == ("pretrained", f"{base}/tokenizer.json", 320)
    assert others.kind == "byte-bpe"
