"""The launchers by name, and waiting for a job of any of them."""

from __future__ import annotations

import time
from typing import cast

from trainwright.core.extension import Extension
from trainwright.spec.job import JobStatus, Launcher

LAUNCHERS = {"local": "trainwright.launch.local:LocalLauncher"}
"""Each as ``package.module:name``; a user's own is written so too."""
LAUNCHER = Extension("launcher", LAUNCHERS)
POLL_S = 0.05, 2.0
"""The first and the longest pause between two looks at a job."""


def launcher(name: str, **settings: object) -> Launcher:
    """Returns the launcher of a name, or of ``package.module:name``, with its settings.

    Raises:
        RecipeError: the name is unknown, or its module or attribute does not exist.
    """
    return cast("Launcher", LAUNCHER.load(name)(**settings))


def wait(place: Launcher, job_id: str, *, timeout_s: float | None = None) -> JobStatus:
    """Returns the status of a job that has ended, or its status after ``timeout_s`` seconds.

    Raises:
        MachineError: no job has this id.
    """
    pause_s, longest_s = POLL_S
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        status = place.status(job_id)
        if status.ended or (end_s is not None and time.monotonic() >= end_s):
            return status
        time.sleep(pause_s)
        pause_s = min(longest_s, 1.5 * pause_s)
