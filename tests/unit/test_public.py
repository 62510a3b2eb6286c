"""The public surface: what it is, that it is documented, that importing it costs nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import trainwright

ROOT = Path(__file__).parents[2]
PUBLIC = [
    "Artifact",
    "DataError",
    "DoesNotFit",
    "Explanation",
    "Interrupted",
    "MachineError",
    "ModelSpec",
    "Plan",
    "Recipe",
    "RecipeError",
    "RecipeErrors",
    "Recommendation",
    "Sweep",
    "TrainingError",
    "TrainwrightError",
    "__version__",
    "explain",
    "load_recipe",
    "open_artifact",
    "plan",
    "recommend",
    "run",
    "sweep",
]


def test_the_surface_is_frozen():
    """A failure is a change for users: it belongs in the changelog and in docs/en/python.md."""
    assert sorted(trainwright.__all__) == PUBLIC == dir(trainwright)


@pytest.mark.parametrize("name", PUBLIC[:])
def test_every_name_is_there_and_says_what_it_is(name):
    assert (getattr(trainwright, name).__doc__ or "").strip()


def test_type_checkers_see_the_same_names():
    stub = ast.parse((ROOT / "src/trainwright/__init__.pyi").read_text(encoding="utf-8"))
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert sorted(names) == PUBLIC
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            assert getattr(import_module(node.module or ""), alias.name) is getattr(trainwright, alias.name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'trainwright' has no attribute 'tranform'"):
        trainwright.tranform  # noqa: B018


def test_importing_loads_nothing_of_ours_and_nothing_of_others():
    code = "import sys, trainwright; print(*[m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    heavy = ("pydantic", "numpy", "torch", "yaml")
    done = subprocess.run(
        [sys.executable, "-c", code, "trainwright", *heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["trainwright"]


@pytest.mark.parametrize("page", ["docs/en/python.md", "docs/zh/python.md"])
def test_every_name_is_documented(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [name for name in PUBLIC if not re.search(rf"`(?:trainwright\.)?{name}\b", text)]
    assert not missing


@pytest.mark.parametrize("page", ["docs/en/python.md", "docs/zh/python.md"])
def test_the_first_example_of_the_page_runs(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL).group(1)
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("fits ")
