"""Python and YAML on a page of the documentation: names that can be imported, keys that a recipe has."""

from __future__ import annotations

import ast
import importlib
import re
from itertools import chain
from pathlib import Path

import pytest
import yaml

from trainwright.core.config.by_name import ByName
from trainwright.spec.recipe import Recipe

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [
        pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, code in enumerate(fence.findall(page.read_text(encoding="utf-8")), start=1)
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_what_python_imports_from_us_is_there(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainwright"):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{node.module} has no {', '.join(missing)}"


@pytest.mark.parametrize("code", blocks("yaml"))
def test_what_yaml_sets_are_sections_of_a_recipe(code):
    sections = yaml.safe_load(code)
    unknown = set(sections) - set(Recipe.model_fields)
    assert not unknown, "no such section"
    for name, value in sections.items():
        section = Recipe.model_fields[name].annotation
        if isinstance(value, dict):
            classes = [*(part.classes for part in Recipe.model_fields[name].metadata if isinstance(part, ByName))]
            known = {key for each in (section, *chain.from_iterable(classes)) for key in each.model_fields}
            assert set(value) <= known, name
