"""A child of multiprocessing ends with its parent, also where that was killed before the child's first line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import multiprocessing, os, sys, time
from pathlib import Path

sys.path.insert(0, {source!r})
from trainwright.runtime.faults.descent import end_with_parent


def child(folder, late):
    if late:
        while os.getppid() == multiprocessing.parent_process().pid:
            time.sleep(0.01)
    else:
        end_with_parent()
    Path(folder, "child").write_text(str(os.getpid()))
    if late:
        end_with_parent()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    started = multiprocessing.get_context("spawn").Process(target=child, args=(sys.argv[1], sys.argv[2] == "late"))
    started.start()
    print(started.pid, flush=True)
    time.sleep(600)
"""
SOURCE = Path(__file__).parents[4] / "src"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's watch is Linux's")
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_child_ends_with_its_parent(tmp_path, when) -> None:
    """``late``: it asks to end with its parent after that was killed."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(source=str(SOURCE)))
    parent = subprocess.Popen([sys.executable, str(program), str(tmp_path), when], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    said = tmp_path / "child"
    while when == "early" and not (said.is_file() and said.read_text()):
        assert child.is_running()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs([child], timeout=60)
    try:
        assert not alive
        assert said.read_text() == str(child.pid)
    finally:
        for each in alive:
            each.kill()
        parent.stdout.close()
