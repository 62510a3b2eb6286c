"""The process that looks after one local job: starts it, keeps its time limit, and writes down how it ended.

``python -m trainwright.launch.supervisor FOLDER``, as ``launch.local`` starts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from trainwright.core.records import from_json
from trainwright.launch.local import JOB, LOG, record_status
from trainwright.spec.job import Job, JobStatus

GRACE_S = 30.0
"""Between SIGTERM and SIGKILL: what a trainer may take for its last checkpoint."""
POLL_S = 0.05


class Supervisor:
    """One job from start to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = from_json(Job, json.loads((folder / JOB).read_text(encoding="utf-8")), where=str(folder / JOB))
        self.cancelled = False
        signal.signal(signal.SIGTERM, self._cancel)

    def run(self) -> None:
        """Runs the job to its end and records it."""
        environment = os.environ | dict(self.job.environment)
        command = [sys.executable, "-m", self.job.module, *self.job.arguments]
        with (self.folder / LOG).open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        record_status(self.folder, JobStatus(state="running"), process=os.getpid(), child=child.pid)
        late = self._watch(child)
        record_status(self.folder, self._outcome(child.returncode, late=late), process=os.getpid())

    def _watch(self, child: subprocess.Popen[bytes]) -> bool:
        """Waits for the end, which a limit or a cancellation brings about; returns whether the limit did."""
        limit_s = self.job.limit_s
        end_s = None if limit_s is None else time.monotonic() + limit_s
        while child.poll() is None:
            late = end_s is not None and time.monotonic() >= end_s
            if late or self.cancelled:
                self._end(child)
                return late and not self.cancelled
            time.sleep(POLL_S)
        return False

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Asks the job's whole process group to end, and after a while makes it."""
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _outcome(self, code: int, *, late: bool) -> JobStatus:
        if self.cancelled:
            return JobStatus(state="cancelled", exit_code=code, reason="cancelled")
        if late:
            return JobStatus(state="failed", exit_code=code, reason=f"ended after its limit of {self.job.limit_s:g} s")
        if code == 0:
            return JobStatus(state="succeeded", exit_code=0)
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return JobStatus(state="failed", exit_code=code, reason=how)

    def _cancel(self, number: int, frame: FrameType | None) -> None:
        self.cancelled = True


def detach(folder: Path) -> None:
    """Runs a job in a process of its own, and returns when its status can be read."""
    recorded, record = os.pipe()
    pid = os.fork()
    if pid:
        record_status(folder, JobStatus(state="running"), process=pid)
        os.close(record)
        return
    os.close(record)
    os.read(recorded, 1)
    os.setsid()
    with Path(os.devnull).open("r+b", buffering=0) as nothing:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            os.dup2(nothing.fileno(), stream.fileno())
    Supervisor(folder).run()


if __name__ == "__main__":
    detach(Path(sys.argv[1]))
