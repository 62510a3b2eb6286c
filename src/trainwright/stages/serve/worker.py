"""The thread that generates: it alone touches the engine, and hands pieces of text to whoever asked for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.model.generate import Engine, Piece
from trainwright.model.sampling import Sampling
from trainwright.stages.serve.metrics import Gauge, Metrics


class Busy(Exception):
    """As many requests wait as may."""


class Stopped(Exception):
    """The worker takes no more requests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """Delivered in place of a piece when generation broke down or the server stops: there will be no more."""

    reason: str


Deliver = Callable[[Piece | Lost], None]


@dataclass(kw_only=True, slots=True)
class Job:
    """A request; ``key`` is the engine's, once the engine has it."""

    prompt: Sequence[int]
    sampling: Sampling
    deliver: Deliver
    since_s: float
    key: int | None = None
    begun: bool = False
    cancelled: bool = False


class Worker:
    """Runs an engine in a thread of its own. All methods may be called from any thread.

    Args:
        engine: nobody else may use it.
        slots: requests generated at once; as many as the engine has.
        max_waiting: requests in line beyond those; more are refused.
        metrics: where tokens and latencies are counted.
    """

    def __init__(self, engine: Engine, *, slots: int, max_waiting: int, metrics: Metrics) -> None:
        self._engine, self._slots, self._room = engine, slots, slots + max_waiting
        self._metrics = metrics
        self._new: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._jobs: dict[int, Job] = {}
        self._unfinished = 0
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="trainwright-engine", daemon=True)
        self.failure: str | None = None
        """Why the engine broke down; None while it works."""
        metrics.add("requests_active", "answers being generated", Gauge(lambda: self.active))
        metrics.add("requests_waiting", "answers waiting in line", Gauge(lambda: self.waiting))

    @property
    def active(self) -> int:
        """Answers being generated."""
        return min(self._unfinished, self._slots)

    @property
    def waiting(self) -> int:
        """Answers waiting in line."""
        return max(0, self._unfinished - self._slots)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, requests: Sequence[tuple[Sequence[int], Sampling, Deliver]]) -> list[Job]:
        """Put requests in line, all of them or none: prompt, settings, and what is called in the worker's thread.

        Returns:
            What ``cancel`` takes.

        Raises:
            Busy: they are more than may wait.
            Stopped: the worker is closed or broken.
        """
        now = time.perf_counter()
        jobs = [
            Job(prompt=prompt, sampling=sampling, deliver=deliver, since_s=now)
            for prompt, sampling, deliver in requests
        ]
        with self._lock:
            if self._closed:
                raise Stopped(self.failure or "the server is stopping")
            if self._unfinished + len(jobs) > self._room:
                raise Busy
            self._unfinished += len(jobs)
            for job in jobs:
                self._new.put(job)
        return jobs

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Forget requests; their slots are free from the next step on. Finished ones are no matter."""
        for job in jobs:
            job.cancelled = True

    def stop(self) -> None:
        """Take no more requests and stop after the present step; unfinished ones are told. Returns at once."""
        with self._lock:
            self._closed = True
        self._new.put(None)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_new():
                self._drop_cancelled()
                self._hand_out(self._engine.step())
        except Exception as error:
            self.failure = f"generation broke down: {type(error).__name__}: {error}"
            raise
        finally:
            self._tell_all_lost()

    def _take_new(self) -> bool:
        """Give new requests to the engine, waiting for one where there is nothing else to do; False to stop."""
        block = not self._jobs
        while True:
            try:
                job = self._new.get(block=block)
            except queue.Empty:
                return True
            if job is None:
                return False
            block = False
            job.key = self._engine.add(job.prompt, job.sampling)
            self._jobs[job.key] = job
            self._metrics.prompt_tokens.add(len(job.prompt))

    def _drop_cancelled(self) -> None:
        for key in [key for key, job in self._jobs.items() if job.cancelled]:
            self._engine.cancel(key)
            self._metrics.cancelled.add()
            self._finish(key)

    def _hand_out(self, pieces: list[Piece]) -> None:
        now = time.perf_counter()
        for piece in pieces:
            job = self._jobs[piece.key]
            latency = self._metrics.time_per_token if job.begun else self._metrics.time_to_first_token
            latency.observe(now - job.since_s)
            job.since_s, job.begun = now, True
            self._metrics.completion_tokens.add()
            if piece.finish is not None:
                self._finish(piece.key)
            job.deliver(piece)

    def _finish(self, key: int) -> None:
        del self._jobs[key]
        with self._lock:
            self._unfinished -= 1

    def _tell_all_lost(self) -> None:
        """The last act of the thread: nobody waits for an answer that will not come."""
        with self._lock:
            self._closed = True
            lost = list(self._jobs.values())
            while not self._new.empty():
                job = self._new.get()
                lost += [] if job is None else [job]
            self._jobs.clear()
            self._unfinished = 0
        for job in lost:
            job.deliver(Lost(reason=self.failure or "the server is stopping"))
