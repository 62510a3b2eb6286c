"""The JSON schema of sections by name: each class once, of which a branch knows the name."""

from __future__ import annotations

from trainwright.spec.recipe import Recipe


def test_a_branch_refers_to_the_class_of_its_name_also_where_that_is_imported_late():
    whole = Recipe.model_json_schema()
    branches = whole["properties"]["task"]["anyOf"]
    of_name = {branch["properties"]["name"].get("const"): branch.get("$ref") for branch in branches}
    assert of_name["distill"] == "#/$defs/DistillSection" and of_name["chat"] == "#/$defs/TaskSection"
    assert set(whole["$defs"]["DistillSection"]["required"]) == {"teacher"}


def test_the_default_name_need_not_be_written():
    branches = Recipe.model_json_schema()["properties"]["task"]["anyOf"]
    needed = {branch["properties"]["name"].get("const"): branch["required"] for branch in branches}
    assert needed["next-token"] == [] and needed["distill"] == ["name"] and needed[None] == ["name"]
