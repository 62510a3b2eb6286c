"""The recipe reference in both languages is what the schema says; the pictures are what their script draws."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml

from trainwright.core.config.explain import explain, keys
from trainwright.spec.recipe import Recipe

DOCS = Path(__file__).parents[3] / "docs"


def script(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look up the types of their fields
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference():
    return script(DOCS / "recipe_reference.py")


def written(language: str) -> str:
    return (DOCS / language / "recipe.md").read_text(encoding="utf-8")


def test_the_recipe_reference_is_what_the_schema_says(reference):
    assert written("en") == reference.page(reference.ENGLISH), "run: python docs/recipe_reference.py"
    assert written("zh") == reference.page(reference.chinese()), "run: python docs/recipe_reference.py"


def test_every_key_of_the_schema_has_a_chinese_description(reference):
    """Against the schema's own list of keys, which the script does not use."""
    described = yaml.safe_load(reference.DESCRIPTIONS.read_text(encoding="utf-8"))
    listed = {item.key for item in keys(Recipe) if item.key}
    assert listed - described.keys() == set(), "translate these in docs/zh/recipe_descriptions.yaml"
    left = {key for key, entry in described.items() if not re.search("[\u4e00-\u9fff]", entry["zh"])}
    assert left == set(), "these are not Chinese yet"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda stored: stored.pop("train.clip_norm"), "train.clip_norm: no Chinese description"),
        (
            lambda stored: stored.update({"train.nothing": {"en": "x", "zh": "无"}}),
            "train.nothing: no key of the recipe",
        ),
        (lambda stored: stored["seed"].update(en="old"), "seed: the English description is now 'the one seed"),
    ],
)
def test_a_key_that_is_new_gone_or_changed_is_named(reference, tmp_path, monkeypatch, damage, words):
    stored = yaml.safe_load(reference.DESCRIPTIONS.read_text(encoding="utf-8"))
    damage(stored)
    path = tmp_path / "descriptions.yaml"
    path.write_text(yaml.safe_dump(stored, allow_unicode=True), encoding="utf-8")
    monkeypatch.setattr(reference, "DESCRIPTIONS", path)
    with pytest.raises(SystemExit, match=re.escape(words)):
        reference.chinese()


def test_no_type_keeps_an_english_word(reference):
    language = reference.chinese()
    for key in reference.english_descriptions():
        text = language.typed(explain(Recipe, key))
        words = set(re.findall("[a-z]{2,}", re.sub(r"'[^']*'|package\.module:\w+", "", text)))
        assert words <= {"null", "true", "false", "kind", "name"}, f"{key}: {text}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_section_has_its_heading(language):
    headings = [line.lstrip("# ") for line in written(language).splitlines() if line.startswith("#")]
    assert {name for name in Recipe.model_fields if name not in ("name", "seed", "stages")} <= set(headings)
    assert {"stages.0", "train.optimizer", "train.exec", "data.sources.0", "serve.demo"} <= set(headings)


@pytest.mark.parametrize(("name", "words"), [("flow.svg", "ENGLISH"), ("flow.zh.svg", "CHINESE")])
def test_the_pictures_are_what_their_script_draws(name, words):
    module = script(DOCS / "assets" / "flow.py")
    assert (DOCS / "assets" / name).read_text(encoding="utf-8") == module.draw(getattr(module, words))
