"""A recipe's key takes a known name or a plug-in, and nothing is imported to check it."""

import os
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, ValidationError

from trainwright.core.config.explain import type_text
from trainwright.core.config.shape import of_field
from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension


class Section(BaseModel):
    filter: Annotated[str, Extension("filter", {"lower": "builtins:str", "join": "os.path:join"})] = Field("lower")


def test_a_recipe_takes_known_names_and_references_and_imports_nothing():
    assert Section(filter="join").filter == "join"
    assert Section(filter="nowhere_at_all.deep:f").filter == "nowhere_at_all.deep:f"
    assert "nowhere_at_all" not in sys.modules


@pytest.mark.parametrize("name", ["lowr", "os.path", ":x", "os:", "os:a.b", ""])
def test_what_can_stand_for_nothing_is_refused_as_an_unknown_value_is(name):
    with pytest.raises(ValidationError) as caught:
        Section(filter=name)
    (error,) = caught.value.errors()
    assert error["type"] == "literal_error"
    assert error["ctx"]["expected"] == "'lower', 'join' or 'package.module:name'"


def test_the_schema_lists_what_is_known():
    assert Section.model_json_schema()["properties"]["filter"]["anyOf"][0] == {"enum": ["lower", "join"]}


def test_an_extension_loads_what_it_knows_and_what_it_does_not():
    extension = Extension("filter", {"join": "os.path:join"})
    assert extension.load("join") is os.path.join
    assert extension.load("os.path:split") is os.path.split
    with pytest.raises(RecipeError, match="unknown filter .*did you mean 'join'"):
        extension.load("joni")


def test_explain_says_what_may_stand_there():
    assert type_text(of_field(Section.model_fields["filter"])) == "'lower', 'join' or 'package.module:name'"


class Named(BaseModel):
    name: str


class Long(Named):
    limit: int = 3


def long(text, section):
    return len(text) > section.limit


def test_what_has_keys_of_its_own_is_called_with_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_own", SimpleNamespace(long=long))
    extension = Extension("filter", {"join": "os.path:join", "long": "my_own:long"})
    assert extension.bound(Named(name="join"), Named) is os.path.join
    for name in ("long", "my_own:long"):
        assert extension.bound(Long(name=name, limit=4), Named)("word") is False
        assert extension.bound(Long(name=name), Named)("word") is True
