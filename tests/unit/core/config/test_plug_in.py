"""An open union: ours by tag, others by ``package.module:Class``, in messages, explanations and the schema."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainwright.core.config.explain import explain, schema
from trainwright.core.config.load import load
from trainwright.core.config.plug_in import PlugInSection
from trainwright.core.errors import RecipeErrors


class Base(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: str


class Circle(Base):
    kind: Literal["circle"]
    radius: float = 1.0


class Square(Base):
    kind: Literal["square"]
    side: float = 1.0


class Star(Base):
    points: int = Field(5, gt=2)


class Picture(BaseModel):
    model_config = ConfigDict(extra="forbid")
    shapes: tuple[
        Annotated[Circle | Square, Field(discriminator="kind"), PlugInSection("kind", "shape", Base)], ...
    ] = Field(description="what is drawn")


@pytest.fixture(autouse=True)
def plug_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_shapes", SimpleNamespace(Star=SimpleNamespace(Section=Star), wrong=3))


def problems(tmp_path, text):
    path = tmp_path / "picture.yaml"
    path.write_text(text)
    with pytest.raises(RecipeErrors) as error:
        load(Picture, files=[path], environ={})
    return [str(problem).replace(f"{path}:", "") for problem in error.value.problems]


def test_members_and_plug_ins_are_validated_by_their_own_class():
    picture = Picture.model_validate({"shapes": [{"kind": "circle"}, {"kind": "my_shapes:Star", "points": 7}]})
    assert [type(shape) for shape in picture.shapes] == [Circle, Star]
    assert picture.model_dump(mode="json")["shapes"][1] == {"kind": "my_shapes:Star", "points": 7}
    assert Picture.model_validate(picture.model_dump()) == picture
    assert Picture(shapes=picture.shapes) == picture


def test_each_problem_has_its_place_and_a_suggestion(tmp_path):
    text = """
shapes:
  - {kind: my_shapes:Star, pionts: 3}
  - {kind: my_shapes:Star, points: 1}
  - {kind: cirle}
  - {kind: my_shapes:wrong}
  - {kind: circle, radius: x}
"""
    open_union = "one of 'circle', 'square' or package.module:name"
    no_shape = "a class whose attribute Section derives from Base"
    assert problems(tmp_path, text) == [
        "3:28: shapes.0.pionts: unknown key (expected one of kind, points); did you mean 'points'?",
        "4:28: shapes.1.points: out of range (seen 1, expected a number > 2)",
        f"5:6: shapes.2.kind: unknown value (seen 'cirle', expected {open_union}); did you mean 'circle'?",
        f"6:6: shapes.3.kind: this is no shape (seen 'my_shapes:wrong', expected {no_shape})",
        "7:20: shapes.4.radius: wrong value (seen 'x', expected a number)",
    ]


def test_explanation_and_schema_say_that_it_is_open():
    assert "'circle', 'square', package.module:name" in explain(Picture, "shapes").type
    items = schema(Picture)["properties"]["shapes"]["items"]["anyOf"]
    assert items[1] == {
        "type": "object",
        "properties": {"kind": {"type": "string", "pattern": ":"}},
        "required": ["kind"],
    }


def test_without_a_tag_it_is_a_member_without_a_tag():
    with pytest.raises(ValidationError, match="Unable to extract tag"):
        Picture.model_validate({"shapes": [{"points": 3}]})
