"""The stage: facts of this moment, the machine's shared probes, findings; written to ``machine.json``."""

from __future__ import annotations

import hashlib
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically, writing
from trainwright.core.units import format_seconds
from trainwright.hardware.machine.facts import MachineFacts, gather
from trainwright.hardware.machine.probes import BUSY, Probes
from trainwright.hardware.machine.record import FILE, Machine, machine_text
from trainwright.hardware.machine.shared import keep_probes, kept_probes, probes_text, shared_probes
from trainwright.stages.doctor.findings import findings
from trainwright.stages.doctor.process import measure


def run(context: Context) -> StageResult:
    """Copy the machine's probes, measured once for all workspaces; the result does not depend on the recipe."""
    machine = examine(context.out, context.events, fallback=context.root)
    write_atomically(context.out / FILE, machine_text(machine))
    facts, probes = machine.facts, machine.probes
    summary = {
        "cpu": facts.cpu,
        "cores": facts.cores,
        "memory_bytes": facts.memory_bytes,
        "findings": len(machine.findings),
    }
    if probes is None:
        return StageResult(summary=summary)
    measured = {
        "device": probes.device_name,
        "probe_s": round(probes.probe_s, 3),
        "thorough": probes.thorough,
        "measured_unix_s": probes.measured_unix_s,
        "probes_sha256": hashlib.sha256(probes_text(probes)).hexdigest(),
    }
    return StageResult(summary=summary | measured | probes.flat(), execution={"threads": probes.threads})


def examine(
    folder: Path, events: Events, *, fallback: Path | None = None, fresh: bool = False, thorough: bool = False
) -> Machine:
    """Returns the facts of this machine and its probes; without torch the facts alone.

    Args:
        folder: whose disk is measured; nothing is left there.
        events: where progress is reported.
        fallback: where probes are kept if the user's home cannot be written; None keeps them nowhere then.
        fresh: measure again, whatever is kept.
        thorough: measure everything; kept probes of a quick measurement do not do.

    Raises:
        DataError: kept probes are damaged.
        MachineError: the folder cannot be written, or torch is here and cannot compute.
    """
    facts = gather(folder)
    probes = None
    if facts.torch is not None:

        def kept() -> Probes | None:
            probes = None if fresh else kept_probes(fallback=fallback)
            return _copied(probes, events) if _will_do(probes, facts, thorough=thorough) else None

        probes = kept()
        if probes is None:
            shared = shared_probes(fallback=fallback)
            waiting = partial(events.message, "another process measures this machine: waiting for it")
            with nullcontext() if shared is None else shared.lock(waiting=waiting):
                probes = kept() or _measured(facts, folder, events, fallback=fallback, thorough=thorough)
    return Machine(facts=facts, probes=probes, findings=tuple(findings(facts, probes, now_unix_s=time.time())))


def _will_do(probes: Probes | None, facts: MachineFacts, *, thorough: bool) -> TypeGuard[Probes]:
    """Returns whether kept probes are enough: thorough where that is asked for, not of a machine busier than now."""
    if probes is None or (thorough and not probes.thorough):
        return False
    return not probes.doubtful or facts.cpu_busy > BUSY


def _copied(probes: Probes, events: Events) -> Probes:
    events.message(f"measured {format_seconds(max(0.0, time.time() - probes.measured_unix_s))} ago")
    return probes


def _try_to_write(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        error.filename = str(folder)  # the file's own name says nothing to a user
        raise


def _measured(facts: MachineFacts, folder: Path, events: Events, *, fallback: Path | None, thorough: bool) -> Probes:
    """New probes, which replace the kept ones; says where they are not kept in the user's home."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _try_to_write(folder)  # a refusal is told before anything is measured
        probes = measure(
            threads=facts.cores,
            folder=folder,
            thorough=thorough,
            say=lambda name: events.message(f"measuring {name}"),
        )
    probes = replace(probes, cpu_busy=facts.cpu_busy)
    place, refusal = keep_probes(probes, fallback=fallback)
    if refusal is not None:
        kept = "not kept" if place is None else f"kept in {place.folder}"
        events.message(
            f"measurements are {kept}: {refusal.filename}: {refusal.strerror}; TRAINWRIGHT_HOME names another home"
        )
    return probes
