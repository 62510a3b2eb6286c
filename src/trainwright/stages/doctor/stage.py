"""The stage: facts, probes, findings, ``machine.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.artifact.events import Events
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.hardware.machine import gather
from trainwright.hardware.record import FILE, Machine, machine_text
from trainwright.spec.recipe import Recipe
from trainwright.stages.doctor.findings import findings
from trainwright.stages.doctor.process import measure


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Look and measure; the result depends on the machine alone, not on the recipe."""
    del recipe, inputs
    machine = examine(out, events)
    write_atomically(out / FILE, machine_text(machine))
    facts, probes = machine.facts, machine.probes
    summary = {
        "cpu": facts.cpu, "cores": facts.cores, "memory_bytes": facts.memory_bytes, "findings": len(machine.findings),
    }  # fmt: skip
    if probes is None:
        return StageResult(summary=summary)
    measured = {"device": probes.device_name, "probe_s": round(probes.probe_s, 3)} | probes.flat()
    return StageResult(summary=summary | measured, execution={"threads": probes.threads})


def examine(folder: Path, events: Events) -> Machine:
    """The record of this machine; ``folder`` is where disk speed is measured. Without torch only facts are there.

    Raises:
        MachineError: the folder cannot be written, or torch is here and cannot compute.
    """
    facts = gather(folder)
    probes = None
    if facts.torch is not None:
        probes = measure(threads=facts.cores, folder=folder, say=lambda name: events.message(f"measuring {name}"))
    return Machine(facts=facts, probes=probes, findings=tuple(findings(facts, probes)))
