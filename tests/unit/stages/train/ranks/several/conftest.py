"""Commands that meet, as threads of one process, each with its own connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from trainwright.core.place import Place
from trainwright.stages.train.ranks.several.meeting import Meeting

COMMANDS = 3


@pytest.fixture
def place() -> Place:
    """The first of three, at a port that is free."""
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", 0))
        port = stream.getsockname()[1]
    return Place(rank=0, commands=COMMANDS, host="127.0.0.1", port=port)


@pytest.fixture
def each(place: Place) -> Iterator[Callable[..., list[Future[object]]]]:
    """What each of the commands comes to; none leaves before all acted, for the first one serves the place."""
    done = threading.Barrier(COMMANDS)
    with ThreadPoolExecutor(COMMANDS) as pool:

        def all_of(act: Callable[[Meeting], object]) -> list[Future[object]]:
            def come(rank: int) -> object:
                here = Meeting(replace(place, rank=rank), 20.0)
                try:
                    return act(here)
                finally:
                    done.wait(60)

            return [pool.submit(come, rank) for rank in range(COMMANDS)]

        yield all_of
