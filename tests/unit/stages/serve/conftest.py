"""``tiny``: the small models of tests/fixtures/tiny_models.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[3] / "fixtures" / "tiny_models.py"


@pytest.fixture(scope="session")
def tiny():
    found = importlib.util.spec_from_file_location("tiny_models", _FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
