from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from trainwright.spec.recipe import Recipe

DOCS = Path(__file__).parents[3] / "docs"


def script(path: Path):
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_recipe_reference_is_what_the_schema_says():
    written = (DOCS / "en" / "recipe.md").read_text(encoding="utf-8")
    assert written == script(DOCS / "recipe_reference.py").page(), "run: python docs/recipe_reference.py"


def test_every_section_has_its_heading():
    headings = [
        line.lstrip("# ")
        for line in (DOCS / "en" / "recipe.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    assert {name for name in Recipe.model_fields if name not in ("name", "seed")} <= set(headings)
    assert {"train.optimizer", "train.exec", "data.sources.0", "serve.demo"} <= set(headings)


@pytest.mark.parametrize(("name", "words"), [("flow.svg", "ENGLISH"), ("flow.zh.svg", "CHINESE")])
def test_the_pictures_are_what_their_script_draws(name, words):
    module = script(DOCS / "assets" / "flow.py")
    assert (DOCS / "assets" / name).read_text(encoding="utf-8") == module.draw(getattr(module, words))
