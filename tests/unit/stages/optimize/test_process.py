"""The measuring process: what it says, how it fails, and that it ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.core.errors import TrainingError
from trainwright.stages.optimize import process

FOUND = '{"step_s": [1.0], "losses": [2.0], "step_tokens": 8, "memory_bytes": 9, "start_s": 0.5, "phases": {}}'


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Takes the place of the program that measures."""

    def write(text: str) -> None:
        (tmp_path / "stand_in.py").write_text(text)
        monkeypatch.setattr(process, "PROGRAM", "stand_in")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))

    return write


def test_the_request_goes_in_and_the_measurement_comes_out(program) -> None:
    program(
        "import json, sys\n"
        "request = json.load(sys.stdin)\n"
        "print(1); print(2)\n"
        f"print({FOUND!r}.replace('8', str(request['steps'])))\n"
    )
    said: list[int] = []
    found = process.measure({"steps": 77}, say=said.append)
    assert said == [1, 2]
    assert (found.step_tokens, found.start_s, found.median_s) == (77, 0.5, 1.0)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("print(1)\nraise ValueError('what was wrong')", "ValueError: what was wrong"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended by signal 9"),
        ("print(1)", "exit status 0"),
    ],
)
def test_a_failure_carries_the_last_line(program, text, seen) -> None:
    program(text)
    with pytest.raises(TrainingError, match=f"cannot be trained here.*{seen}"):
        process.measure({}, say=lambda done: None)


def test_an_interruption_ends_the_process_too(program, tmp_path) -> None:
    program(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path / 'id')!r}).write_text(str(os.getpid()))\n"
        "print(1, flush=True)\ntime.sleep(60)"
    )

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.measure({}, say=interrupt)
    number = int((tmp_path / "id").read_text())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_killed_ladder_leaves_no_process_and_no_file(program, tmp_path, monkeypatch) -> None:
    """The child computes in C, as a compiler does, and looks at nothing itself."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    child, mark = tmp_path / "id", tmp_path / "asks.py"
    program(
        "import os, pathlib, sys, time\nfrom trainwright.launch.parent import end_with\nend_with(int(sys.argv[1]))\n"
        f"pathlib.Path({str(child)!r}).write_text(str(os.getpid()))\ntime.sleep(60)"
    )
    mark.write_text(
        "from trainwright.stages.optimize import process\nprocess.PROGRAM = 'stand_in'\n"
        "process.measure({}, say=lambda done: None)"
    )
    parent = subprocess.Popen([sys.executable, str(mark)])
    _wait(lambda: child.exists() and child.read_text())
    parent.kill()
    parent.wait()
    number = child.read_text()
    _wait(lambda: not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text().split()[2])
    assert not list(temporary.iterdir())


def _wait(happened) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
