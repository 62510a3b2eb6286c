"""What every unit test stands on: no measurements of this machine but its own; streams that are looked at."""

from __future__ import annotations

import io

import pytest

from trainwright.cli.output import Output


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A home of the test's own, so that one test's invented machine is not another's."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path_factory.mktemp("home")))


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
