"""``Job``: what a launcher runs; and what every launcher can do with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

from trainwright.core.frozen import dataclass

JobState = Literal["running", "succeeded", "failed", "cancelled", "lost"]
"""``lost``: nobody looks after the job any more, and how it ended is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """``python -m module arguments``, once on each node.

    ``devices_per_node`` are reserved for it where the launcher reserves devices. ``image`` is a container's. After
    ``limit_s`` seconds the job is ended.
    """

    module: str
    arguments: tuple[str, ...] = ()
    nodes: int = 1
    devices_per_node: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    limit_s: float | None = None

    def problems(self) -> tuple[str, ...]:
        """Returns why this can be no job; empty where it can."""
        problems = []
        if not all(part.isidentifier() for part in self.module.split(".")):
            problems.append(f"module must be a module's name, seen {self.module!r}")
        if self.nodes < 1:
            problems.append(f"nodes must be at least 1, seen {self.nodes}")
        if self.devices_per_node < 0:
            problems.append(f"devices_per_node must be at least 0, seen {self.devices_per_node}")
        if self.limit_s is not None and not self.limit_s > 0:
            problems.append(f"limit_s must be above 0, seen {self.limit_s:g}")
        return tuple(problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus:
    """Where a job stands; ``reason`` says in words why it did not succeed."""

    state: JobState
    exit_code: int | None = None
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Returns whether nothing more will happen."""
        return self.state != "running"


class Launcher(Protocol):
    """A place where jobs run. It keeps no state of its own: another process can ask for the same jobs."""

    def submit(self, job: Job) -> str:
        """Starts a job and returns its id.

        Raises:
            RecipeError: the job cannot run here; says why, and nothing was started.
            MachineError: the place does not answer, or the disk is full.
        """

    def status(self, job_id: str) -> JobStatus:
        """Returns where a job stands.

        Raises:
            MachineError: no job has this id.
        """

    def cancel(self, job_id: str) -> None:
        """Asks a job to end; one that has ended stays as it is.

        Raises:
            MachineError: no job has this id.
        """

    def log(self, job_id: str) -> Path:
        """Returns the file that holds what the job printed so far.

        Raises:
            MachineError: no job has this id.
        """
