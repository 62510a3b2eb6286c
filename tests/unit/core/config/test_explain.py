from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from trainwright.core.config.explain import explain, keys, schema
from trainwright.core.config.tree import DEFAULT, node_of
from trainwright.core.errors import RecipeError
from trainwright.core.extension import with_keys


def test_a_number_has_bounds_default_and_doc(small):
    found = explain(small, "train.optimizer.lr")
    assert found.lines() == [
        "train.optimizer.lr",
        "  peak learning rate",
        "  type: number > 0 and <= 1",
        "  default: 0.0003",
    ]
    assert not found.required


def test_names_carry_units(small):
    assert explain(small, "train.wait_s").unit == "seconds"
    assert explain(small, "train.batch_tokens").unit == "tokens"
    assert explain(small, "train.compile").unit is None


def test_allowed_values_are_listed(small):
    assert explain(small, "train.optimizer.name").allowed == ("adamw", "muon")
    assert explain(small, "train.compile").allowed == (True, False)
    assert explain(small, "train.micro_batch").type == "whole number or 'auto'"
    assert explain(small, "train.weights").type == "whole number or list of whole number or null"


def test_a_bound_is_said_of_numbers_not_of_the_words_beside_them():
    class Exec(BaseModel):
        workers: Annotated[int, Field(gt=0)] | Literal["auto"] | None = None

    assert explain(Exec, "workers").type == "whole number > 0 or 'auto' or null"


def test_a_section_lists_its_members(small):
    found = explain(small, "train")
    assert found.doc == "the run"
    assert ("optimizer", "the update rule") in found.members
    assert "    optimizer        the update rule" in found.lines()


@pytest.mark.parametrize("key", ["sources.text_key", "sources.0.text_key", "sources.*.text_key"])
def test_items_of_a_list_are_found_with_and_without_index(small, key):
    found = explain(small, key)
    assert found.key == "sources.0.text_key"
    assert found.only_for == ("jsonl",)


def test_the_name_that_decides_the_keys_is_any_of_ours_or_a_plug_in(small):
    found = explain(small, "sources.kind")
    assert found.allowed == ("files", "jsonl")
    assert found.required


def test_an_unknown_key_is_suggested(small):
    with pytest.raises(RecipeError, match=r"did you mean 'train\.optimizer\.lr'"):
        explain(small, "train.lr")
    with pytest.raises(RecipeError, match=r"did you mean 'train\.compile'"):
        explain(small, "train.compil")
    with pytest.raises(RecipeError, match="no such key"):
        explain(small, "name.more")


def test_every_key_explains_itself(small):
    found = [key.key for key in keys(small)]
    assert found[:5] == ["name", "sources", "sources.0.kind", "sources.0.paths", "sources.0.include"]
    assert "train.optimizer.betas" in found
    assert len(set(found)) == len(found)
    for key in found:
        assert explain(small, key).key == key


def test_the_schema_says_what_the_model_enforces(small):
    found = schema(small)
    assert found["$schema"].endswith("2020-12/schema")
    assert found["required"] == ["name"]
    assert found["additionalProperties"] is False
    rate = found["$defs"]["Optimizer"]["properties"]["lr"]
    assert (rate["exclusiveMinimum"], rate["maximum"], rate["default"]) == (0, 1.0, 3e-4)
    names = [each["properties"]["kind"].get("const") for each in found["properties"]["sources"]["items"]["anyOf"][:2]]
    assert names == ["files", "jsonl"]


def written(*sources):
    return node_of({"name": "x", "sources": list(sources)}, DEFAULT)


@pytest.fixture
def late(monkeypatch, small):
    """A source from outside that declares a key of its own."""
    source = small.model_fields["sources"].annotation.__args__[0].__metadata__[0].base
    section = create_model("Late", __base__=source, hours=(int, Field(3, ge=0, description="how late")))
    monkeypatch.setitem(sys.modules, "from_outside", SimpleNamespace(late=with_keys(section)(lambda: None)))
    return {"kind": "from_outside:late"}


@pytest.mark.parametrize("key", ["sources.hours", "sources.1.hours"])
def test_a_plug_in_that_is_named_has_its_keys(small, late, key):
    found = explain(small, key, written({"kind": "jsonl", "paths": ["a"]}, late))
    assert found.lines()[1:] == [
        "  how late",
        "  type: whole number >= 0",
        "  default: 3",
        "  only for: from_outside:late",
    ]


def test_a_section_of_a_plug_in_lists_its_keys_and_others_have_theirs(small, late):
    both = written({"kind": "jsonl", "paths": ["a"]}, late)
    assert ("hours", "how late") in explain(small, "sources.1", both).members
    assert "hours" not in dict(explain(small, "sources.0", both).members)
    assert explain(small, "sources.text_key", both).only_for == ("jsonl",)
    assert explain(small, "train.optimizer.lr", both) == explain(small, "train.optimizer.lr")


def test_the_keys_of_a_plug_in_that_nobody_names_are_asked_for(small, late):
    with pytest.raises(RecipeError, match="no such key .*for a plug-in's keys add the recipe that names it"):
        explain(small, "sources.hours")
    with pytest.raises(RecipeError) as caught:
        explain(small, "sources.hours", written({"kind": "files", "paths": ["a"]}))
    assert "plug-in" not in str(caught.value)
