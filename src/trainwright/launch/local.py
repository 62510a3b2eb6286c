"""Runs jobs on this machine, each under a supervisor that outlives the process which submitted it.

``<root>/<id>/`` holds ``job.json``, ``log.txt`` and ``status.json``; the folder's name is the job's id.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from trainwright.artifact.store import write_atomically, writing
from trainwright.core.errors import MachineError, RecipeError
from trainwright.spec.job import Job, JobStatus

JOB, LOG, STATUS = "job.json", "log.txt", "status.json"
SUPERVISOR = "trainwright.launch.supervisor"


class LocalLauncher:
    """This machine: one node, its devices not divided among jobs."""

    def __init__(self, root: Path) -> None:
        """Keeps jobs below a folder, which is made with the first job."""
        self.root = root

    def submit(self, job: Job) -> str:
        """Starts the job in the background and returns its id.

        Raises:
            RecipeError: the job cannot run on one machine without containers.
            MachineError: the folder cannot be written.
        """
        problems = [*job.problems(), *_foreign(job)]
        if problems:
            raise RecipeError("this job cannot run here: {reasons}", reasons="; ".join(problems))
        folder = self.root / f"job-{uuid.uuid4().hex[:12]}"
        with writing(folder):
            folder.mkdir(parents=True)
            write_atomically(folder / JOB, json.dumps(asdict(job)).encode())
            (folder / LOG).touch()
        # It returns as soon as the supervisor is there, which goes on in a session of its own.
        subprocess.run([sys.executable, "-m", SUPERVISOR, str(folder.absolute())], stdin=subprocess.DEVNULL, check=True)
        return folder.name

    def status(self, job_id: str) -> JobStatus:
        """Returns where the job stands.

        Raises:
            MachineError: no job has this id.
        """
        record = self._record(job_id)
        status = JobStatus(**record["status"])
        if status.ended or _runs(record["supervisor"]):
            return status
        # The supervisor writes how the job ended before it ends itself: look again, it may have done so just now.
        status = JobStatus(**self._record(job_id)["status"])
        return status if status.ended else JobStatus(state="lost", reason="the job's supervisor was killed")

    def cancel(self, job_id: str) -> None:
        """Asks the job to end with SIGTERM, and after a while with SIGKILL.

        Raises:
            MachineError: no job has this id.
        """
        record = self._record(job_id)
        for name in ("supervisor", "process"):
            if _runs(record[name]):
                os.kill(record[name]["pid"], signal.SIGTERM)
                return

    def log(self, job_id: str) -> Path:
        """Returns the file that the job prints into.

        Raises:
            MachineError: no job has this id.
        """
        self._record(job_id)
        return self.root / job_id / LOG

    def _record(self, job_id: str) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads((self.root / job_id / STATUS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise MachineError("no job of this id", where=self.root, seen=repr(job_id)) from None
        return record


def _foreign(job: Job) -> list[str]:
    """Returns what of a job one machine without containers cannot do."""
    reasons = []
    if job.nodes > 1:
        reasons.append(f"nodes must be 1 on this machine, seen {job.nodes}")
    if job.image is not None:
        reasons.append(f"image needs a launcher with containers, seen {job.image!r}")
    return reasons


def record_status(folder: Path, status: JobStatus, *, process: int, child: int | None = None) -> None:
    """Writes where a job stands, with its processes: a process is known by its id and the time of its start."""
    record = {"status": asdict(status), "supervisor": _process(process), "process": _process(child)}
    write_atomically(folder / STATUS, json.dumps(record).encode())


def _process(pid: int | None) -> dict[str, float] | None:
    if pid is None:
        return None
    try:
        return {"pid": pid, "started_s": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:
        return {"pid": pid, "started_s": 0.0}


def _runs(process: dict[str, Any] | None) -> bool:
    """Returns whether a recorded process is still that process, and no zombie."""
    if process is None:
        return False
    try:
        here = psutil.Process(process["pid"])
        return here.create_time() == process["started_s"] and here.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
