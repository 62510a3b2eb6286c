"""What a plug-in has to be is checked before it is called, and its own errors are one line that names it."""

from __future__ import annotations

import importlib
import os.path
import sys
import textwrap
from collections.abc import Iterator

import pytest

from trainwright.core.errors import DataError, Interrupted, RecipeError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called, InstanceOf, blaming, blaming_at_fault, described, instance
from trainwright.core.units import format_count
from trainwright.spec.sections.task import TaskKind

PAIR = Called(arguments=("network", "section"))
OPENER = Called(arguments=("directory",), keywords=("places",))
WRITER = Called(methods=("write", "read"))


class Whole:
    def write(self) -> None: ...

    def read(self) -> None: ...


def whole() -> Whole:
    return Whole()


class Half:
    def write(self) -> None: ...


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (PAIR, lambda a, b: None),
        (PAIR, lambda a, b, c=1: None),
        (PAIR, lambda *args, **keywords: None),
        (OPENER, lambda folder, *, places: None),
        (OPENER, lambda folder, places=2: None),
        (WRITER, Whole),
        (WRITER, whole),
        (InstanceOf(int), 3),
    ],
)
def test_what_can_be_called_so_is_taken(requirement, value) -> None:
    assert requirement.holds(value)


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (PAIR, os.path.join),
        (PAIR, lambda text: None),
        (PAIR, lambda a, b, c: None),
        (PAIR, 3),
        (OPENER, lambda folder: None),
        (OPENER, lambda folder, *, rooms: None),
        (WRITER, Half),
        (WRITER, lambda text: None),
        (InstanceOf(int), int),
    ],
)
def test_what_cannot_is_refused(requirement, value) -> None:
    assert not requirement.holds(value)


def test_the_refusal_names_the_key_what_is_there_and_what_should_be() -> None:
    extension = Extension("optimizer", {}, PAIR)
    (problem,) = extension.problems("os.path:join", where="train.optimizer.name")
    assert str(problem) == (
        "train.optimizer.name: this is no optimizer "
        "(seen os.path:join, a function of (a, p), expected a function of (network, section))"
    )
    assert list(Extension("optimizer", {"adamw": "nowhere:at_all"}, PAIR).problems("adamw", where="")) == []


def test_an_object_is_described_by_what_it_can_be_called_with() -> None:
    assert described(os.path.join) == "a function of (a, p)"
    assert described(Half) == "the class Half"
    assert described(3) == "an object of type int"


def test_what_a_plug_in_raises_is_one_line_that_names_it() -> None:
    with pytest.raises(RecipeError) as caught, blaming("my.own:rule", where="train.optimizer.name"):
        raise KeyError("no\nsuch")
    assert str(caught.value).startswith("train.optimizer.name: the plug-in my.own:rule failed (seen KeyError: ")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError), blaming("my.own:rule", where="here", error_class=DataError):
        raise KeyError


def test_a_plug_in_that_exits_has_failed() -> None:
    line = r"^a\.b: the plug-in my\.own:rule failed \(seen SystemExit: 0\)"
    with pytest.raises(RecipeError, match=line), blaming("my.own:rule", where="a.b"):
        sys.exit(0)
    with pytest.raises(KeyboardInterrupt), blaming("my.own:rule", where="a.b"):
        raise KeyboardInterrupt
    with pytest.raises(Interrupted), blaming("my.own:rule", where="a.b"):
        raise Interrupted("stopped")
    with pytest.raises(SystemExit), blaming("adamw", where="a.b"):
        sys.exit(0)


def test_our_own_mistakes_and_errors_in_words_stay_what_they_are() -> None:
    with pytest.raises(KeyError), blaming("adamw", where="train.optimizer.name"):
        raise KeyError
    with pytest.raises(DataError), blaming("my.own:rule", where="here"):
        raise DataError("the disk")


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
            "a, b",
            "mine.rules:task or mine.rules:optimizer",
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
def test_a_declaration_stands_for_the_code_that_it_names() -> None:
    sys.modules["mine"].KIND = TaskKind(make="apart:made")
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


def test_what_a_plug_in_returned_is_checked() -> None:
    assert instance(3, int) == 3
    with pytest.raises(TypeError, match=r"it returned an object of type NoneType, not an instance of builtins\.int"):
        instance(None, int)
