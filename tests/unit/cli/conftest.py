"""A command of our own and a recipe."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from trainwright.cli import main as cli

RECIPE = """\
name: tiny
model: {layers: 2, width: 64, heads: 4, context_tokens: 256}
data:
  sources:
    - kind: python-stdlib
train:
  sequence_tokens: 256
  batch_tokens: 2048
  optimizer:
    lr: 1e-3
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A valid recipe in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return "tiny.yaml"


@pytest.fixture
def fake(monkeypatch):
    """Put a command called ``fake`` into the table: ``fake(run)``."""

    def _install(run, configure=lambda parser: None):
        module = SimpleNamespace(__doc__="A command for tests.", run=run, configure=configure)
        monkeypatch.setitem(sys.modules, "fake_command", module)
        monkeypatch.setitem(cli.COMMANDS, "fake", cli.Command("fake_command", "for tests"))

    return _install
