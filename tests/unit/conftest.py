"""What every unit test stands on: no measurements of this machine but its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A home of the test's own, so that one test's invented machine is not another's."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path_factory.mktemp("home")))
