"""Jobs on processes: their order, their errors, and that none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_bytes
from trainwright.launch.jobs import WorkerDied, run_apart, run_jobs

SLEEPING = r"""
import pathlib, signal, sys, time
from trainwright.launch.jobs import run_jobs

def sleep(name):
    pathlib.Path(sys.argv[1], name).touch()
    time.sleep(600)

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    run_jobs(sleep, ["a", "b", "c"], workers=2)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers):
    seen = []
    assert run_jobs(abs, [-3, -1, -2], workers=workers, on_done=lambda job, result: seen.append((job, result))) == [
        3,
        1,
        2,
    ]
    assert sorted(seen) == [(-3, 3), (-2, 2), (-1, 1)]


def test_no_jobs():
    assert run_jobs(abs, [], workers=4) == []


def test_work_apart_is_another_process():
    assert run_apart(eval, "__import__('os').getpid()") != os.getpid()


def test_a_user_error_comes_out_as_it_is():
    with pytest.raises(RecipeError) as here:
        parse_bytes("three")
    with pytest.raises(RecipeError) as there:
        run_apart(parse_bytes, "three")  # a function that the new process can import
    assert str(there.value) == str(here.value)
    assert there.value.seen == "'three'"


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(WorkerDied, match="a worker process was ended from outside .*; it may have run out of memory"):
        run_apart(os._exit, 3)


def test_an_interrupt_while_the_pool_is_starting_is_an_interrupt(monkeypatch):
    start, came = threading.Thread.start, []

    def interrupted(thread):
        if type(thread).__name__ == "_ExecutorManagerThread" and not came:
            came.append(thread)
            signal.raise_signal(signal.SIGINT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(abs, [-1, -2], workers=2)
    assert came
    assert run_jobs(abs, [-1, -2], workers=2) == [1, 2]


HOLDING = "import ctypes\n" + SLEEPING.replace("    time.sleep(600)", "    ctypes.PyDLL(None).sleep(600)")
"""A library that never gives Python's lock back: no signal handler and no thread of the worker runs."""


@pytest.mark.parametrize("code", [SLEEPING, HOLDING], ids=["sleeping", "holding"])
@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_workers_end_with_their_parent(tmp_path, how, to_all, code):
    script = tmp_path / "script.py"
    script.write_text(code)
    started = tmp_path / "started"
    started.mkdir()
    process = subprocess.Popen([sys.executable, script, started], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while len(list(started.iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, how) if to_all else process.send_signal(how)
        process.wait(timeout=30)
        assert process.returncode == (-how if how == signal.SIGKILL else -signal.SIGINT)
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert alive == []
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
