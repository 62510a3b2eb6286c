from __future__ import annotations

import queue
import threading
import time

import pytest

from trainwright.spec.generation import Sampling
from trainwright.stages.serve.worker import Busy, Lost, WorkerStopped


@pytest.fixture
def worker(make_service, slow):
    made = make_service(max_concurrent=2, max_waiting=2).worker
    made.start()
    yield made
    made.stop()
    made.join()


def submit(worker, n=1, max_tokens=3):
    arrived = queue.SimpleQueue()
    return worker.submit([([1, 2], Sampling(max_tokens=max_tokens), arrived.put)] * n), arrived


def collect(arrived) -> list:
    pieces = []
    while not pieces or (not isinstance(pieces[-1], Lost) and pieces[-1].finish is None):
        pieces.append(arrived.get(timeout=10))
    return pieces


def test_pieces_arrive_until_the_last(worker, eventually):
    _, arrived = submit(worker)
    pieces = collect(arrived)
    assert [piece.finish for piece in pieces] == [None, None, "length"]
    eventually(lambda: worker.active == worker.waiting == 0)


def test_requests_come_from_many_threads(worker):
    answers = []

    def ask():
        while True:
            try:
                _, arrived = submit(worker)
            except Busy:
                time.sleep(0.001)
                continue
            answers.append([piece.text for piece in collect(arrived)])
            return

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(texts == answers[0] for texts in answers)


def test_all_or_none_are_taken_and_the_line_is_counted(worker):
    submit(worker, n=3, max_tokens=400)
    assert (worker.active, worker.waiting) == (2, 1)
    with pytest.raises(Busy):
        submit(worker, n=2)
    assert (worker.active, worker.waiting) == (2, 1)
    submit(worker, n=1)
    assert (worker.active, worker.waiting) == (2, 2)


def test_cancelled_requests_give_way_also_in_line(worker, eventually):
    running, _ = submit(worker, n=2, max_tokens=400)
    waiting, arrived = submit(worker, n=2, max_tokens=400)
    worker.cancel([*running, waiting[0]])
    assert arrived.get(timeout=10).finish is None
    eventually(lambda: (worker.active, worker.waiting) == (1, 0))
    worker.cancel(waiting)
    eventually(lambda: worker.active == 0)


def test_stopping_tells_those_who_wait_and_takes_no_more(worker):
    _, running = submit(worker, max_tokens=400)
    running.get(timeout=10)
    worker.stop()
    assert isinstance(collect(running)[-1], Lost)
    worker.join()
    with pytest.raises(WorkerStopped, match="the server is stopping"):
        submit(worker)
