"""Jobs on processes that end with their parent, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import TypeVar

from trainwright.core.errors import MachineError, in_one_line
from trainwright.launch.parent import end_with_parent

Input = TypeVar("Input")
Result = TypeVar("Result")

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_QUEUED_PER_WORKER = 4
"""Jobs handed out ahead, so that a long list is not pickled at once."""


class WorkerDied(MachineError):
    """A process ended without a word, as one does that the system kills where memory ends."""


def run_jobs(
    function: Callable[[Input], Result],
    jobs: Sequence[Input],
    *,
    workers: int,
    on_done: Callable[[Input, Result], None] = lambda _job, _result: None,
    apart: bool = False,
) -> list[Result]:
    """``[function(job) for job in jobs]``, on ``workers`` processes, or in this one when ``workers`` is 1.

    ``apart`` keeps even a single job out of this process: what its libraries hold on to goes with it.

    ``on_done`` is called here, as jobs end, in any order. The first exception, Ctrl-C included, ends all workers at
    once: jobs must leave nothing half-done behind. A process that dies without one is ``WorkerDied``.
    """
    if not apart and (workers <= 1 or len(jobs) <= 1):
        results = []
        for job in jobs:
            results.append(function(job))
            on_done(job, results[-1])
        return results
    return _run_on_processes(function, jobs, max(1, min(workers, len(jobs))), on_done)


def run_apart(function: Callable[[Input], Result], job: Input) -> Result:
    """``function(job)`` in a process of its own: its memory goes with it, and Ctrl-C ends it at any moment."""
    return _run_on_processes(function, [job], 1, lambda _job, _result: None)[0]


def _run_on_processes(
    function: Callable[[Input], Result], jobs: Sequence[Input], workers: int, on_done: Callable[[Input, Result], None]
) -> list[Result]:
    # spawn: forking a process that has threads (BLAS, Arrow, a progress bar) can deadlock in the child.
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(reader,))
    results: dict[int, Result] = {}
    pending: dict[Future[Result], int] = {}
    queue = iter(range(len(jobs)))
    others = set(multiprocessing.active_children())
    try:
        while len(results) < len(jobs):
            while len(pending) < workers * _QUEUED_PER_WORKER and (number := next(queue, None)) is not None:
                with _signals_later():
                    pending[pool.submit(function, jobs[number])] = number
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                number = pending.pop(future)
                results[number] = future.result()
                on_done(jobs[number], results[number])
        pool.shutdown()
    except BrokenProcessPool as error:
        more = "it may have run out of memory: leave it more, or use fewer processes at once"
        raise WorkerDied("a worker process was ended from outside", seen=in_one_line(error), fix=more) from error
    finally:
        # Workers are idle here, or what they do is not wanted any more. Killed, because a library that holds Python's
        # lock while it works (as tokenizer trainers do) hears neither a signal nor a closed pipe.
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        writer.close()
        pool.shutdown(wait=True, cancel_futures=True)
        reader.close()
    return [results[number] for number in range(len(jobs))]


@contextmanager
def _signals_later() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP take effect at the end of the block.

    An executor that is interrupted between making its thread and seeing it started can neither go on nor shut down.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {int(number): signal.getsignal(number) for number in _STOPPING}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda seen, frame: came.append((seen, frame)))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    for number, frame in came:
        ours[number](number, frame)


def _start_worker(parent: Connection) -> None:
    """Leaves Ctrl-C, SIGTERM and SIGHUP to the parent, which may get them too; ends when its end of the pipe closes."""
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    end_with_parent()

    def watch() -> None:
        parent.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
