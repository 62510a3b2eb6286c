from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.cli.arguments import (
    add_recipe,
    add_workspace,
    load_recipe,
    split_inputs,
    workspace_of,
)
from trainwright.cli.parser import CommandParser, add_common
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.pipeline.presets import presets


def parse(*arguments):
    parser = CommandParser(prog="trainwright plan")
    add_recipe(parser)
    add_workspace(parser)
    add_common(parser)
    args = parser.parse_args(arguments)
    args.command = "plan"
    return args


def test_files_and_overrides_are_told_apart():
    inputs = ["a.yaml", "train.lr=1", "runs/lr=3/r.yaml", "name=", "./x=1", "a=b=c"]
    assert split_inputs(inputs) == (
        [Path("a.yaml"), Path("runs/lr=3/r.yaml"), Path("./x=1")],
        ["train.lr=1", "name=", "a=b=c"],
    )


def test_a_recipe_is_loaded_from_all_layers(recipe, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_TRAIN__OPTIMIZER__LR", "0.25")
    monkeypatch.setenv("TRAINWRIGHT_WORKSPACE", "elsewhere")
    monkeypatch.setenv("TRAINWRIGHT_DEBUG", "")
    loaded = load_recipe(parse(recipe, "train.optimizer.name=muon"))
    assert (loaded.value.name, loaded.value.train.optimizer.lr, loaded.value.train.optimizer.name) == (
        "tiny",
        0.25,
        "muon",
    )


def test_an_unknown_variable_is_an_error(recipe, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_WORKSPCE", "elsewhere")
    with pytest.raises(RecipeErrors, match="environment variable TRAINWRIGHT_WORKSPCE: workspce: unknown key"):
        load_recipe(parse(recipe))


def test_without_a_recipe_the_line_shows_how():
    with pytest.raises(RecipeError, match=r"no recipe .*for example: trainwright plan recipes/quickstart\.yaml"):
        load_recipe(parse("train.optimizer.lr=1"))


def test_a_preset_stands_below_the_recipe(tmp_path, recipe):
    name = next(iter(presets()))
    loaded = load_recipe(parse(recipe, "--preset", name))
    assert any(str(origin).startswith(f"preset {name}:") for origin in loaded.origins.values())
    with pytest.raises(RecipeError, match="unknown preset .seen 'zzz'"):
        load_recipe(parse(recipe, "--preset", "zzz"))


def test_the_workspace_is_named_by_flag_variable_or_recipe(monkeypatch):
    assert workspace_of(parse(), name="tiny") == Path("runs/tiny")
    monkeypatch.setenv("TRAINWRIGHT_WORKSPACE", "elsewhere")
    assert workspace_of(parse(), name="tiny") == Path("elsewhere")
    monkeypatch.setenv("TRAINWRIGHT_WORKSPACE", "~/elsewhere")
    assert workspace_of(parse(), name="tiny") == Path.home() / "elsewhere"
    assert workspace_of(parse("--workspace", "here"), name="tiny") == Path("here")
