from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from trainwright.cli.main import COMMANDS, Command
from trainwright.cli.shell import surface

GOLDEN = Path(__file__).parents[3] / "golden" / "cli_surface.txt"


def test_the_surface_is_frozen():
    """A failure is a change for users: ``python -m trainwright.cli.shell.surface > tests/golden/cli_surface.txt``."""
    assert surface.text() == GOLDEN.read_text(encoding="utf-8")


def test_every_command_has_its_module():
    assert [name for name, command in COMMANDS.items() if find_spec(command.module) is None] == []


@pytest.fixture
def only_config(monkeypatch):
    monkeypatch.setattr(surface, "COMMANDS", {"config": Command("trainwright.cli.recipe.config", "about recipes")})


def test_subcommands_follow_their_command(only_config):
    commands = list(surface.surfaces())
    assert [each.words for each in commands] == [
        ("config",),
        ("config", "show"),
        ("config", "explain"),
        ("config", "schema"),
        ("config", "validate"),
    ]
    assert commands[0].subcommands == ("show", "explain", "schema", "validate")
    assert [option.metavar for option in commands[1].positionals] == ["RECIPE|KEY=VALUE"]


def test_every_command_speaks_json(only_config):
    for each in list(surface.surfaces())[1:]:
        assert ("--json",) in [option.flags for option in each.options]


def test_the_frozen_form_has_a_line_for_everything(only_config):
    lines = surface.text().splitlines()
    assert lines[0] == "config: about recipes"
    assert "    --preset NAME: ready-made settings below the recipe files" in lines
