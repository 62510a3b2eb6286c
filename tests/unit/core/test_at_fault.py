"""What a plug-in raises anywhere in a recipe's work is one line under the key that names it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace

import pytest

from trainwright.core.at_fault import blaming_at_fault
from trainwright.core.errors import RecipeError
from trainwright.core.units import format_count
from trainwright.spec.families.llama import FAMILY
from trainwright.spec.sections.task import TaskKind

MODULES = {
    "mine/__init__.py": "",
    "mine/rules.py": """
        def optimizer(): raise ZeroDivisionError("by zero")
        def schedule(): raise OSError(28, "No space left on device")
        def family(): raise SystemExit(0)
        def task(): from mine import helper; helper.fall()
    """,
    "mine/helper.py": "def fall(): raise KeyError('x')",
    "mine/family.py": "def family(): import apart; apart.made()",
    "apart.py": "def made(): raise IndexError",
}


@pytest.fixture
def _mine(monkeypatch, tmp_path) -> Iterator[None]:
    """A package with plug-ins in two modules and a helper of theirs, and a module that stands alone."""
    (tmp_path / "mine").mkdir()
    for name, text in MODULES.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine.rules", "mine.family", "apart"):
        importlib.import_module(name)
    yield
    for name in [name for name in sys.modules if name == "apart" or name.partition(".")[0] == "mine"]:
        del sys.modules[name]


@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize(
    ("settings", "call", "where", "name"),
    [
        (
            {"train": {"optimizer": "mine.rules:optimizer"}},
            "mine.rules:optimizer",
            "train.optimizer",
            "mine.rules:optimizer",
        ),
        ({"model": {"family": "mine.rules:family"}}, "mine.rules:family", "model.family", "mine.rules:family"),
        ({"a": ["x", "mine.rules:task"], "b": "other:task"}, "mine.rules:task", "a.1", "mine.rules:task"),
        (
            {"a": "mine.rules:task", "b": "mine.rules:optimizer"},
            "mine.rules:optimizer",
            "b",
            "mine.rules:optimizer",
        ),
        (
            {"a": "mine.rules:Task", "b": "mine.rules:Rule"},
            "mine.rules:optimizer",
            "a",
            "mine.rules:Task or mine.rules:Rule",
        ),
        ({"a": "mine.family:family", "b": "apart:made"}, "mine.family:family", "b", "apart:made"),
    ],
)
def test_the_innermost_code_of_a_plug_in_is_at_fault(settings, call, where, name) -> None:
    module, _, function = call.partition(":")
    with pytest.raises(RecipeError) as caught, blaming_at_fault(settings):
        getattr(sys.modules[module], function)()
    assert str(caught.value).startswith(f"{where}: the plug-in {name} failed (seen ")


@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize(
    "declaration",
    [TaskKind(make="apart:made"), replace(FAMILY, network="apart:Net"), replace(FAMILY, huggingface="apart")],
    ids=["make", "network", "huggingface"],
)
def test_a_declaration_stands_for_the_code_that_it_names(declaration) -> None:
    sys.modules["mine"].KIND = declaration
    with (
        pytest.raises(RecipeError, match="task.name: the plug-in mine:KIND failed"),
        blaming_at_fault({"task": {"name": "mine:KIND"}}),
    ):
        sys.modules["apart"].made()


@pytest.mark.usefixtures("_mine")
def test_what_is_no_plug_in_s_mistake_is_left_as_it_is() -> None:
    named = {"a": "mine.rules:schedule", "b": "torch.optim:SGD", "c": "trainwright.core.spelling:with_article"}
    with pytest.raises(OSError, match="No space left"), blaming_at_fault(named):
        sys.modules["mine.rules"].schedule()
    with pytest.raises(IndexError), blaming_at_fault(named):
        sys.modules["apart"].made()
    with pytest.raises(TypeError), blaming_at_fault(named):
        format_count("no number")
