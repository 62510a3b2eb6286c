"""The recipes that come along: all of the repository's, each with a line, in the words of its own file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from trainwright import load_recipe, plan
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError
from trainwright.pipeline.recipes import shipped
from trainwright.pipeline.recipes.shipped import shipped_recipe, shipped_recipes
from trainwright.spec.recipe import Recipe

ROOT = Path(__file__).parents[4]


def test_they_are_the_repositorys_files(monkeypatch, tmp_path) -> None:
    files = {path.stem: path.read_text() for path in (ROOT / "recipes").glob("*.yaml")}
    assert {name: each.text for name, each in shipped_recipes().items()} == files
    for each in shipped_recipes().values():
        assert 20 < len(each.says) < 120 and not each.says.endswith((".", ":")), each.name


def test_each_is_a_recipe_of_its_files_name() -> None:
    for path in (ROOT / "recipes").glob("*.yaml"):
        assert load(Recipe, files=[path], environ={}).value.name == path.stem


@pytest.mark.parametrize("card", ["rtx-4090", "a10g", "l4"])
def test_a_model_of_8b_is_tuned_on_a_card_of_24_gb(card: str) -> None:
    recipe = load_recipe(ROOT / "recipes" / "finetune-llama3-8b.yaml")  # neither weights nor a network are needed
    assert plan(recipe, on=card).estimate.fit == "fits"


def test_what_was_measured_is_said() -> None:
    assert "on two cores" in shipped_recipe("quickstart").takes
    assert shipped_recipe("gpt2-124m").takes is None


def test_a_wheel_has_them_where_they_are_looked_for(monkeypatch, tmp_path) -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert package["force-include"] == {"recipes": "trainwright/catalog/recipes"}
    installed = tmp_path / "trainwright" / "catalog" / "recipes"
    installed.mkdir(parents=True)
    (installed / "one.yaml").write_text("# One thing:\n# Takes: a day\nname: one\n")
    monkeypatch.setattr(shipped.trainwright, "__file__", str(tmp_path / "trainwright" / "__init__.py"))
    assert [(each.says, each.takes) for each in shipped_recipes().values()] == [("One thing", "a day")]


@pytest.mark.parametrize("name", ["quickstart", "quickstart.yaml", "recipes/quickstart.yaml"])
def test_a_name_is_taken_as_it_is_seen(name) -> None:
    assert shipped_recipe(name).name == "quickstart"


def test_an_unknown_one_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        RecipeError, match=r"no such recipe \(seen 'quikstart', expected one of bert-classify, .*quickstart"
    ):
        shipped_recipe("quikstart")
