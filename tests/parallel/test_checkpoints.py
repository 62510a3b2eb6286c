"""A checkpoint that any layout wrote is read by every other one, to the last bit; four ranks start once for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.started import start
from parallel.checkpoint_ranks import LAYOUTS_OF, RANKS, main, sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]
"""Four ranks write and read pairs of layouts: of one family all, of the others some; all of all is a soak test."""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw."""
    return seen_by_ranks(tmp_path_factory.mktemp("checkpoints"), every=False)


def seen_by_ranks(folder: Path, *, every: bool) -> list[dict[str, Any]]:
    """Starts the ranks and gives what each saw."""
    start(main, RANKS, folder, RANKS, str(folder), every)
    return [json.loads(Path(folder, f"results-{rank}.json").read_text()) for rank in range(RANKS)]


def test_layouts_read_each_other(results) -> None:
    same = results[0]["same"]
    asked = [sources(family, name, every=False) for family, layouts in LAYOUTS_OF.items() for name in layouts]
    assert len(same) == sum(map(len, asked)) >= len(LAYOUTS_OF["llama"]) ** 2
    assert [name for name, equal in same.items() if not equal] == []


@pytest.mark.soak
def test_every_layout_reads_every_layout_in_every_family(tmp_path) -> None:
    same = seen_by_ranks(tmp_path, every=True)[0]["same"]
    assert len(same) == sum(len(layouts) ** 2 for layouts in LAYOUTS_OF.values())
    assert [name for name, equal in same.items() if not equal] == []


def test_every_rank_writes_about_as_much(results) -> None:
    sizes = results[0]["facts"]["sizes"]
    assert len(sizes) == RANKS
    assert max(sizes) < 1.3 * min(sizes)


def test_damage_that_one_rank_sees_is_passed_over_by_all(results) -> None:
    assert all(each["facts"]["passed over"] for each in results)


def test_a_rank_that_cannot_write_fails_the_write_of_all(results) -> None:
    assert all("Permission denied" in each["facts"]["refused"] for each in results)
