"""What a plug-in has to be is checked before it is called, and its own errors are one line that names it."""

from __future__ import annotations

import os.path
import sys

import pytest

from trainwright.core.errors import DataError, Interrupted, RecipeError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called, InstanceOf, blaming, described, instance

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


def test_what_a_plug_in_returned_is_checked() -> None:
    assert instance(3, int) == 3
    with pytest.raises(TypeError, match=r"it returned an object of type NoneType, not an instance of builtins\.int"):
        instance(None, int)
