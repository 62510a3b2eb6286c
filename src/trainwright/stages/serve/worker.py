"""The thread that generates: it alone calls the engine, and delivers pieces of text to the requests' callbacks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.core.errors import RecipeError
from trainwright.model.generation.texts import Piece, TextGenerator
from trainwright.spec.generation import Failure, Sampling
from trainwright.stages.serve.metrics import Gauge, ServerMetrics


class Busy(Exception):
    """No place is free and the line is full."""


class WorkerStopped(Exception):
    """The worker takes no more requests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """Delivered in place of a piece when a request ends without an answer; ``status`` is the HTTP answer's."""

    reason: str
    status: int = 503


Deliver = Callable[[Piece | Lost], None]


@dataclass(kw_only=True, slots=True)
class GenerationJob:
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
        generator: the engine behind its text; nobody else may use it.
        places: requests that the engine generates at once.
        max_waiting: requests in line beyond those; more are refused.
        metrics: where tokens and latencies are counted.
    """

    def __init__(self, generator: TextGenerator, *, places: int, max_waiting: int, metrics: ServerMetrics) -> None:
        self._generator, self._places = generator, places
        self.capacity = places + max_waiting
        """Requests under way and in line at most."""
        self._metrics = metrics
        self._new: queue.SimpleQueue[GenerationJob | None] = queue.SimpleQueue()
        self._jobs: dict[int, GenerationJob] = {}
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
        """Returns number of answers being generated."""
        return min(self._unfinished, self._places)

    @property
    def waiting(self) -> int:
        """Returns number of answers waiting in line."""
        return max(0, self._unfinished - self._places)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, requests: Sequence[tuple[Sequence[int], Sampling, Deliver]]) -> list[GenerationJob]:
        """Puts requests in line, all of them or none: prompt, settings, and a callback for the worker's thread.

        Returns:
            The jobs, which ``cancel`` takes.

        Raises:
            Busy: the line has no room for all of them.
            WorkerStopped: the worker is closed or broken.
        """
        now = time.perf_counter()
        jobs = [
            GenerationJob(prompt=prompt, sampling=sampling, deliver=deliver, since_s=now)
            for prompt, sampling, deliver in requests
        ]
        with self._lock:
            if self._closed:
                raise WorkerStopped(self.failure or "the server is stopping")
            if self._unfinished + len(jobs) > self.capacity:
                raise Busy
            self._unfinished += len(jobs)
            for job in jobs:
                self._new.put(job)
        return jobs

    def cancel(self, jobs: Sequence[GenerationJob]) -> None:
        """Cancels requests; their places are free from the next step on. Finished ones stay as they are."""
        for job in jobs:
            job.cancelled = True

    def stop(self) -> None:
        """Refuses new requests and stops after the present step; unfinished ones get ``Lost``. Returns at once."""
        with self._lock:
            self._closed = True
        self._new.put(None)

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_new():
                self._drop_cancelled()
                self._deliver(self._generator.step())
        except (Exception, SystemExit) as error:
            self.failure = f"generation broke down: {type(error).__name__}: {error}"
            raise
        finally:
            self._lose_all()

    def _take_new(self) -> bool:
        """Passes new requests to the engine, and waits for one if it has none; returns False to stop."""
        block = not self._jobs
        while True:
            try:
                job = self._new.get(block=block)
            except queue.Empty:
                return True
            if job is None:
                return False
            block = False
            self._add(job)

    def _add(self, job: GenerationJob) -> None:
        try:
            job.key = self._generator.add(job.prompt, job.sampling)
        except RecipeError as error:
            with self._lock:
                self._unfinished -= 1
            job.deliver(Lost(reason=str(error), status=400))
            return
        self._jobs[job.key] = job
        self._metrics.prompt_tokens.add(len(job.prompt))

    def _drop_cancelled(self) -> None:
        for key in [key for key, job in self._jobs.items() if job.cancelled]:
            self._generator.cancel(key)
            self._metrics.cancelled.add()
            self._finish(key)

    def _deliver(self, pieces: list[Piece | Failure]) -> None:
        now = time.perf_counter()
        for piece in pieces:
            job = self._jobs[piece.key]
            if isinstance(piece, Failure):
                self._finish(piece.key)
                job.deliver(Lost(reason=f"generation failed: {piece.reason}", status=500))
                continue
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

    def _lose_all(self) -> None:
        """Delivers ``Lost`` to every unfinished request, so that no client waits for ever."""
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
