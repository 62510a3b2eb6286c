"""Keys by name: those of ours, those that a plug-in declares, in messages, explanations and the schema."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainwright.core.config.by_name import ByName
from trainwright.core.config.explain import explain, schema
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.core.extension import Extension, with_keys
from trainwright.core.plug_in import Called
from trainwright.spec.sections.data import CleanSection, DataSection
from trainwright.spec.sections.serve import ServeSection
from trainwright.spec.sections.train import TrainSection

SHAPES = Extension("shape", {"circle": "my.own:circle", "dot": "my.own:dot"}, Called(arguments=("at",)))


class Base(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Annotated[str, SHAPES]


class Circle(Base):
    radius: float = 1.0


class Star(Base):
    points: int = Field(5, gt=2)


@with_keys(Star)
def star(at, section):
    """A plug-in with keys."""


@with_keys(Star)
def deaf(at):
    """Declares keys and does not take them."""


@with_keys(Called)
def odd(at, section):
    """Its keys are no section."""


def cross(at):
    """A plug-in without keys."""


Shape = Annotated[Base, ByName(SHAPES, Base, {"circle": Circle}, tag="kind")]


class Picture(BaseModel):
    model_config = ConfigDict(extra="forbid")
    shapes: tuple[Shape, ...] = Field((), description="what is drawn")


@pytest.fixture(autouse=True)
def plug_in(monkeypatch):
    module = SimpleNamespace(star=star, deaf=deaf, odd=odd, cross=cross, wrong=3)
    monkeypatch.setitem(sys.modules, "my_shapes", module)


def read(tmp_path, text, *overrides):
    path = tmp_path / "picture.yaml"
    path.write_text(text)
    return load(Picture, files=[path], environ={}, overrides=overrides)


def problems(tmp_path, text):
    with pytest.raises(RecipeErrors) as error:
        read(tmp_path, text)
    return [str(problem).replace(f"{tmp_path / 'picture.yaml'}:", "") for problem in error.value.problems]


def test_each_name_has_the_keys_of_its_class():
    written = [{"kind": "circle"}, "dot", {"kind": "my_shapes:star", "points": 7}, "my_shapes:cross"]
    picture = Picture.model_validate({"shapes": written})
    assert [type(shape) for shape in picture.shapes] == [Circle, Base, Star, Base]
    assert picture.model_dump(mode="json")["shapes"][2] == {"kind": "my_shapes:star", "points": 7}
    assert Picture.model_validate(picture.model_dump()) == picture
    assert Picture(shapes=picture.shapes) == picture


def test_the_name_decides_the_class_of_what_a_caller_made():
    assert Picture(shapes=(Base(kind="circle"),)).shapes == (Circle(kind="circle"),)


def test_each_problem_has_its_place_and_a_suggestion(tmp_path):
    text = """
shapes:
  - {kind: my_shapes:star, pionts: 3}
  - {kind: my_shapes:star, points: 1}
  - {kind: cirle, radius: 2}
  - {kind: my_shapes:wrong}
  - {kind: circle, radius: x}
  - {kind: dot, radius: 2}
  - my_shapes:wrong
  - my_shapes:deaf
  - my_shapes:odd
  - 3
"""
    known = "'circle', 'dot' or 'package.module:name'"
    no_shape = "this is no shape (seen my_shapes:wrong, an object of type int, expected a function of (at))"
    deaf = "seen my_shapes:deaf, a function of (at), expected a function of (at, *, section)"
    odd = f"seen my_shapes:odd, whose Section is the class Called, expected a class that derives from {__name__}.Base"
    assert problems(tmp_path, text) == [
        "3:28: shapes.0.pionts: unknown key (expected one of kind, points); did you mean 'points'?",
        "4:28: shapes.1.points: out of range (seen 1, expected a number > 2)",
        f"5:6: shapes.2.kind: unknown value (seen 'cirle', expected {known}); did you mean 'circle'?",
        f"6:6: shapes.3.kind: {no_shape}",
        "7:20: shapes.4.radius: wrong value (seen 'x', expected a number)",
        "8:17: shapes.5.radius: unknown key (expected one of kind); it goes with kind: circle",
        f"9:5: shapes.6: {no_shape}",
        f"10:5: shapes.7: this is no shape ({deaf})",
        f"11:5: shapes.8: the keys of this shape do not fit ({odd})",
        "12:5: shapes.9: wrong value (seen 3, expected a mapping)",
    ]


def test_another_name_drops_the_keys_of_the_former_one(tmp_path):
    text = "shapes: [{kind: circle, radius: 2}, dot]\n"
    loaded = read(tmp_path, text, "shapes.0.kind=my_shapes:star", "shapes.1.kind=circle", "shapes.1.radius=3")
    assert loaded.value.shapes == (Star(kind="my_shapes:star"), Circle(kind="circle", radius=3))
    kept = read(tmp_path, text, "shapes.0.radius=4").value.shapes[0]
    assert kept == Circle(kind="circle", radius=4)


def test_an_explanation_says_what_may_stand_there():
    assert "its kind one of 'circle', 'dot', package.module:name" in explain(Picture, "shapes").type
    assert explain(Picture, "shapes.0.radius").only_for == ("circle",)
    assert explain(Picture, "shapes.0.kind").only_for == ()


TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "null": type(None)}


def accepts(rule: dict, value: object, definitions: dict) -> bool:
    """Whether JSON Schema accepts a value, by the words that say which keys and names there may be."""
    members = (
        {key: item for key, item in value.items() if key in rule.get("properties", ())} if type(value) is dict else {}
    )
    checks = {
        "anyOf": lambda rules: any(accepts(each, value, definitions) for each in rules),
        "type": lambda name: isinstance(value, TYPES[name]),
        "$ref": lambda name: accepts(definitions[name.removeprefix("#/$defs/")], value, definitions),
        "const": lambda only: value == only,
        "enum": lambda allowed: value in allowed,
        "pattern": lambda pattern: re.search(pattern, value) is not None,
        "items": lambda each: all(accepts(each, item, definitions) for item in value),
        "properties": lambda rules: all(accepts(rules[key], item, definitions) for key, item in members.items()),
        "required": lambda keys: set(keys) <= value.keys(),
        "additionalProperties": lambda _: members.keys() == value.keys(),
    }
    # In this order: those below need what those above have found, the type of the value.
    return all(checks[word](rule[word]) for word in checks if word in rule)


FILES = {"kind": "text", "paths": ["a.txt"]}


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        *((Picture, "shapes", [each]) for each in ("dot", "circle", "cirle", {"kind": "circle", "radius": 2}, {}, 3)),
        *((Picture, "shapes", [each]) for each in ({"kind": "dot", "radius": 2}, {"kind": "star:"})),
        *((Picture, "shapes", [each]) for each in ("my_shapes:cross", ":", {"kind": "my_shapes:star", "points": 3})),
        *((DataSection, "sources", [FILES | more]) for more in ({}, {"separator": "x"}, {"text_key": "x"})),
        *((DataSection, "sources", [each]) for each in ("python-stdlib", "text", {"kind": "text"}, {"paths": ["a"]})),
        *((CleanSection, "filters", [each]) for each in ("long-lines", "long-line", {"name": "few-letters"})),
        *((CleanSection, "filters", [{"name": name, "min_ratio": 0.2}]) for name in ("few-letters", "long-lines")),
        *((TrainSection, "optimizer", {"muon_lr": 0.1} | name) for name in ({}, {"name": "muon"}, {"name": "adamw"})),
        *((TrainSection, "optimizer", each) for each in ({}, {"betas": [0.5, 0.9]}, "muon")),
        *((TrainSection, "schedule", {"name": name, "final_ratio": 0}) for name in ("linear", "wsd", "constant")),
        *((ServeSection, "engine", each) for each in ("torch", "tourch", {}, {"name": "torch"}, {"name": ":"})),
    ],
)
def test_the_schema_accepts_what_the_recipe_accepts(model, key, value):
    try:
        model.model_validate({key: value})
        valid = True
    except (ValidationError, RecipeError):
        valid = False
    whole = schema(model)
    assert accepts(whole, {key: value}, whole["$defs"]) is valid
