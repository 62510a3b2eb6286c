"""Cycles are collected when a step says so, and never between."""

from __future__ import annotations

import gc
import weakref

import pytest

from trainwright.runtime.garbage import MOST_STEPS, collected_by_hand


class Cycle:
    def __init__(self):
        self.me = self


def dropped():
    return weakref.ref(Cycle())


def test_cycles_go_after_so_many_steps_and_not_before():
    frozen = gc.get_freeze_count()
    with collected_by_hand() as collect:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > frozen
        cycle = dropped()
        for _ in range(3000):  # more allocations than automatic collection waits for
            dropped()
        collect(MOST_STEPS - 1)
        assert cycle() is not None
        collect(MOST_STEPS)
        assert cycle() is None
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was_found_whatever_happens(on):
    if not on:
        gc.disable()
    try:
        with pytest.raises(KeyError), collected_by_hand():
            raise KeyError
        assert gc.isenabled() == on
    finally:
        gc.enable()
