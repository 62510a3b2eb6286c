"""In every layout the average is the mean of the weights, and validation leaves nothing behind; ranks start once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.started import start
from parallel.average_ranks import LAYOUTS, RANKS, SCHEDULE_FREE, main

pytestmark = pytest.mark.slow
LATER = 1e-8


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """What the first rank saw of each layout."""
    folder = tmp_path_factory.mktemp("average")
    start(main, RANKS, folder, RANKS, str(folder))
    found: dict[str, dict[str, float]] = json.loads(Path(folder, "facts.json").read_text())
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_the_mean_of_weights(layout, facts) -> None:
    assert facts[layout]["average"] < 1e-14
    assert facts[layout]["average alone"] < LATER


@pytest.mark.parametrize("layout", [*LAYOUTS, *(f"schedule-free, {name}" for name in SCHEDULE_FREE)])
def test_validation_sees_it_and_training_does_not(layout, facts) -> None:
    assert facts[layout]["given"] == 0
    assert facts[layout]["left behind"] == 0
    assert facts[layout]["weights alone"] < LATER, "training went on from weights of the average"
    assert facts[layout]["loss"] < 1e-6
