"""A process ends with the one that started it, by the kernel's watch or, where there is none, by its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CHILD = """
import os, sys, time
from pathlib import Path
{before}
from trainwright.launch.parent import end_with
end_with(int(sys.argv[1]))
Path(sys.argv[2]).write_text(str(os.getpid()))
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys
subprocess.Popen([sys.executable, sys.argv[1], str(os.getpid()), sys.argv[2]]).wait()
"""

PROGRAM = """
import multiprocessing, os, sys, time
from pathlib import Path
from trainwright.launch.parent import end_with_parent


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


def ended(number: str) -> bool:
    """Of one whose parent is gone: not there, or waiting to be collected."""
    stat = Path(f"/proc/{number}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def waited(happened, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(happened())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("before", ["", "sys.platform = 'darwin'"], ids=["kernel", "thread"])
def test_a_killed_parent_takes_its_child_along(tmp_path, before) -> None:
    child, parent, written = tmp_path / "child.py", tmp_path / "parent.py", tmp_path / "id"
    child.write_text(CHILD.format(before=before))
    parent.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(parent), str(child), str(written)]) as started:
        assert waited(lambda: written.exists() and written.read_text(), 30)
        number = written.read_text()
        assert not ended(number)
        started.kill()
    assert waited(lambda: ended(number), 10)


def test_a_process_whose_parent_is_gone_already_ends_at_once(tmp_path) -> None:
    child = tmp_path / "child.py"
    child.write_text(CHILD.format(before=""))
    other = str(os.getpid() + 1)
    assert subprocess.run([sys.executable, str(child), other, str(tmp_path / "id")], check=False).returncode == 1
    assert not (tmp_path / "id").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's watch is Linux's")
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_child_of_multiprocessing_ends_with_its_parent(tmp_path, when) -> None:
    """``late``: it asks to end with its parent after that was killed."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
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
