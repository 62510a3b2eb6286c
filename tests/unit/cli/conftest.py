"""A command of our own, a recipe, and a stream that says it is a terminal."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from trainwright.cli import main as cli
from trainwright.cli.output import Output

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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    return Terminal()


@pytest.fixture
def output_to():
    """``output_to(stderr=..., quiet=True)`` -> Output on string streams."""

    def _output(**options):
        streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        return Output(**{"command": "fake", **streams, **options})

    return _output


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
