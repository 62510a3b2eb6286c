"""Jobs side by side give what they give one after the other, tell how far they are, and leave no process."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from trainwright.core.errors import RecipeError
from trainwright.stages.train.ranks.dry_run.places import side_by_side


def squared(number: int) -> tuple[int, int]:
    if number < 0:
        raise RecipeError("no such place", where="here", seen=str(number))
    return number**2, os.getpid()


@pytest.mark.parametrize("apart", [False, True])
def test_results_are_in_the_order_of_the_jobs(apart) -> None:
    told = []
    found = side_by_side(squared, range(5), lambda *far: told.append(far), apart=apart)
    assert [result for result, _ in found] == [0, 1, 4, 9, 16]
    assert told == [(done, 5) for done in range(1, 6)]
    several = apart and (os.cpu_count() or 1) > 1
    assert (os.getpid() in {process for _, process in found}) == (not several)


@pytest.mark.parametrize("apart", [False, True])
def test_an_error_of_one_ends_all(apart) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(RecipeError, match="here: no such place"):
        side_by_side(squared, [3, -1, 2], lambda *_: None, apart=apart)
    assert set(multiprocessing.active_children()) <= before
