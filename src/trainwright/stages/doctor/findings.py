"""Facts of a machine that will hurt, each with the line that mends it. Pure: facts and probes in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.units import format_bytes
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.probes import Probes
from trainwright.hardware.machine.record import Finding

LOW_DISK_BYTES = 5 << 30
LOW_MEMORY_BYTES = 4 << 30
OLD_S = 90 * 86400.0
"""Measurements are older than a season: a processor does not age, but its cooling, its neighbours and limits change."""


def findings(facts: MachineFacts, probes: Probes | None, *, now_unix_s: float) -> Iterator[Finding]:
    """In the order in which a user would mend them."""
    if facts.bits != 64:
        yield Finding(what=f"Python is a {facts.bits}-bit build", fix="install a 64-bit Python: torch has no other")
    if facts.torch is None:
        yield Finding(what="torch is not installed", fix="pip install 'trainwright[train]'")
    elif facts.gpus and facts.torch.endswith("+cpu"):
        yield Finding(
            what=f"{facts.gpus[0].name} is here, but torch {facts.torch} is built for CPUs only",
            fix="install a CUDA build: https://pytorch.org/get-started",
        )
    if facts.memory_available_bytes < LOW_MEMORY_BYTES:
        yield Finding(
            what=f"only {format_bytes(facts.memory_available_bytes)} of memory are available",
            fix="close other programs, or train a smaller model",
        )
    if facts.disk_free_bytes < LOW_DISK_BYTES:
        yield Finding(
            what=f"only {format_bytes(facts.disk_free_bytes)} are free in {facts.disk_path}",
            fix="free some space, or choose another disk for the workspace",
        )
    if facts.compiler is None:
        yield Finding(what="no C++ compiler: torch.compile cannot be used", fix="install g++ (Debian: apt install g++)")
    elif not facts.python_headers:
        yield Finding(
            what="Python's C headers are missing: torch.compile cannot be used",
            fix="install them (Debian: apt install python3-dev)",
        )
    if probes is not None and probes.doubtful:
        yield Finding(
            what=f"measured while other programs used {probes.cpu_busy:.0%} of the processors: rates are too low",
            fix="measure again without them: trainwright doctor --fresh",
        )
    if probes is not None and now_unix_s - probes.measured_unix_s > OLD_S:
        yield Finding(
            what=f"the measurements are {(now_unix_s - probes.measured_unix_s) / 86400:.0f} days old",
            fix="measure again: trainwright doctor --fresh",
        )
    if probes is not None and not accelerator(probes.device_kind).verified:
        record = accelerator(probes.device_kind)
        yield Finding(
            what=f"training on {record.title}s was {record.standing} by this project",
            fix="make gpu would show it at work, and write down how well",
        )
    if probes is not None and probes.device_kind == "cpu" and facts.gpus:
        yield Finding(what=f"{facts.gpus[0].name} was not measured", fix="torch does not see it: check nvidia-smi")
