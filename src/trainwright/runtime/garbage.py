"""Python's garbage collector, kept out of training steps: it runs when it is told to, over what is new alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MOST_STEPS = 50
"""Steps between two collections, so that cycles never hold much."""


@contextmanager
def collected_by_hand() -> Iterator[Callable[[int], None]]:
    """Stops automatic collection; what is alive before is not looked at again until the end.

    Yields:
        A function of the steps done, which collects after every ``MOST_STEPS`` of them. Ranks count alike, so that
        none waits for the collection of another.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()

    def collect(done: int) -> None:
        if done % MOST_STEPS == 0:
            gc.collect()

    try:
        yield collect
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
