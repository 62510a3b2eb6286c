"""A launcher that the project does not have: this machine, and every job knows its name."""

from __future__ import annotations

from dataclasses import replace

from trainwright.launch.local import LocalLauncher
from trainwright.spec.job import Job


class Named(LocalLauncher):
    """Sets ``PLACE`` in each job's environment."""

    def submit(self, job: Job) -> str:
        return super().submit(replace(job, environment={"PLACE": "here", **job.environment}))
