"""The key-value store of torch's at which commands meet: served by the first one, reached by the others in time."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue

from torch._C._distributed_c10d import TCPStore  # torch.distributed has it too, without saying so to mypy
from torch.distributed.distributed_c10d import Store

from trainwright.core.errors import MachineError, in_one_line
from trainwright.core.place import Place

POLL_S = 0.1
GRACE_S = 1.0
"""How much longer than torch's own time limit its store is waited for: it says more than ours."""
ELSEWHERE_S, UNKNOWN_S = 10.0, 60.0
"""How long the first command tries under an address that is not its own, which may lead back to it, and under a name
that nobody knows yet, as those of Kubernetes are when a pod starts."""
IN_USE = "another process listens at this port"
NOT_HERE = {False: "this host does not have this address", None: "no host of this name was found"}
"""By what ``_is_here`` says."""


def reached(place: Place, limit_s: float) -> Store:
    """Returns the store that lies at the meeting place, once it answers; the first command may serve it itself.

    Raises:
        MachineError: nobody serves it within ``limit_s`` seconds, or its port is in use.
    """
    return _served(place, limit_s) if place.leads and not place.served else _found(place, limit_s)


def _served(place: Place, limit_s: float) -> Store:
    """Returns the store that this process serves, which its own client reaches under the name that others know."""
    here = _is_here(place.host)
    patience_s = min(limit_s, math.inf if here else UNKNOWN_S if here is None else ELSEWHERE_S)
    try:
        with _silence():
            store = _within(patience_s, partial(_store, place, patience_s, serves=True))
    except (RuntimeError, TimeoutError) as error:
        taken = "EADDRINUSE" in str(error)
        seen = IN_USE if taken else NOT_HERE[here] if here in NOT_HERE else in_one_line(error)
        expected = "a free port" if taken else "an address of the host of node 0, where this command runs"
        fix = "name another port on every node" if taken else "name that host on every node, or run node 0 there"
        raise MachineError("cannot meet here", where=place.endpoint, seen=seen, expected=expected, fix=fix) from error
    store.set_timeout(timedelta(seconds=max(limit_s, 1.0)))
    return store


def _is_here(host: str) -> bool | None:
    """Returns whether an address of a host is one of this machine's; None where its name is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, address in found:
        with socket.socket(family, kind) as stream, suppress(OSError):
            stream.bind(address)
            return True
    return False


def _found(place: Place, limit_s: float) -> Store:
    """Returns the store that the first command or its launcher serves."""
    until = time.monotonic() + limit_s
    while not _answers(place) and time.monotonic() < until:
        time.sleep(POLL_S)
    try:
        if not _answers(place):  # asked here, for torch prints two pages before it says so
            raise ConnectionError("no answer")
        with _silence():
            return _within(max(until - time.monotonic(), 1.0), partial(_store, place, limit_s, serves=False))
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        raise MachineError(
            "{why} within {limit_s:g} s",
            where=place.endpoint,
            fix="start the command of {noun} 0 there, or raise train.exec.rendezvous_timeout",
            why=_why_nobody(place, error),
            limit_s=limit_s,
            noun=place.noun,
        ) from error


def _store(place: Place, limit_s: float, *, serves: bool) -> Store:
    return TCPStore(
        place.host,
        place.port,
        world_size=None,
        is_master=serves,
        timeout=timedelta(seconds=max(limit_s, 1.0)),
        wait_for_workers=False,
        multi_tenant=True,
    )


def _within(limit_s: float, make: Callable[[], Store]) -> Store:
    """Returns what ``make`` makes, in a thread that is left alone after the limit: torch's own knows none here.

    Where something that is no store takes the connection and says nothing, torch waits without end and hears no signal.

    Raises:
        TimeoutError: nothing was made.
    """
    made: SimpleQueue[Store | Exception] = SimpleQueue()

    def work() -> None:
        try:
            made.put(make())
        except (RuntimeError, OSError) as error:  # torch's, all of them RuntimeError
            made.put(error)

    threading.Thread(target=work, daemon=True, name="meeting").start()
    try:
        result = made.get(timeout=limit_s + GRACE_S)
    except Empty:
        raise TimeoutError("no word of a store") from None
    if isinstance(result, Exception):
        raise result
    return result


def _why_nobody(place: Place, error: Exception) -> str:
    """Returns why nobody was met."""
    if not isinstance(error, ConnectionError):
        return f"something answered here, but no command of {place.noun} 0"
    try:
        socket.getaddrinfo(place.host, place.port)
    except OSError:
        return "no host of this name was found"
    return "nobody was here"


@contextmanager
def _silence() -> Iterator[None]:
    """Leaves the telling to us: torch writes a page to stderr for each try at what is not its store."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def _answers(place: Place) -> bool:
    try:
        socket.create_connection((place.host, place.port), timeout=1.0).close()
    except OSError:
        return False
    return True
