"""Muon over matrices that four ranks share gives the bits of Muon over whole ones, and each rank has its part to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.muon_ranks import RANKS, SHAPES, main
from fixtures.started import start

WAYS = {"rows": 1, "rows, copied": 2, "cuts": 1, "rows of cuts": 1}
"""And how many copies of the ranks that share a matrix there are."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw."""
    folder = tmp_path_factory.mktemp("muon")
    start(main, RANKS, folder, str(folder))
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("way", WAYS)
def test_shared_matrices_move_as_whole_ones(found, way) -> None:
    assert [each[way]["differs"] for each in found] == [[False] * len(SHAPES)] * RANKS


@pytest.mark.parametrize(("way", "copies"), WAYS.items())
def test_each_rank_finds_directions_of_its_part_of_the_matrices(found, way, copies) -> None:
    shares = [each[way]["found"] for each in found]
    assert sum(shares) == copies * len(SHAPES)
    assert max(shares) - min(shares) <= 1
