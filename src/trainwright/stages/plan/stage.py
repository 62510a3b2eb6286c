"""The stage: ``machine.json`` in, ``plan.json`` out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trainwright.artifact.events import Events
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.errors import DoesNotFit
from trainwright.core.records import to_json
from trainwright.core.units import format_bytes, format_seconds
from trainwright.hardware.record import FILE, read_machine
from trainwright.planner.published.finished import read_ledgers
from trainwright.planner.published.ledger import ledgers_of
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.plan.build import build_plan


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Plan on the doctor's numbers and on the ledger of finished runs, as it stands now.

    Of a later ledger the plan of a finished run is not made again: it is the prediction that the run is held against.

    Raises:
        DataError: the machine record is damaged.
        DoesNotFit: the run needs more memory than there is; names the smallest change that fits.
    """
    inputs["doctor"].verify()
    ledger = read_ledgers(ledgers_of(out.parent))
    for line in ledger.broken:
        events.message(f"ledger, line skipped: {line}")
    plan = build_plan(recipe, read_machine(inputs["doctor"].file(FILE)), ledger)
    found = plan.estimate
    if not found.fits:
        raise DoesNotFit(
            "the run does not fit in memory",
            where=plan.cluster.device.name,
            seen=format_bytes(found.memory.total_bytes),
            expected=f"at most {format_bytes(found.memory_available_bytes)}", fix=f"try: {plan.rejected[-1].reason}",
        )  # fmt: skip
    events.message(verdict(plan))
    write_atomically(out / "plan.json", json.dumps(to_json(plan), indent=1).encode() + b"\n")
    return StageResult(
        summary={
            "fits": found.fits, "precision": plan.workload.precision, "parameters": sum(plan.parameters.values()),
            "steps": plan.workload.steps, "micro_batch": plan.parallel.micro_batch_sequences,
            "compile": plan.parallel.compile, "memory_bytes": found.memory.total_bytes, "seconds": found.seconds.mid,
            "tokens_per_s": found.tokens_per_s, "mfu": found.mfu, "bottleneck": found.bottleneck,
        }
    )  # fmt: skip


def verdict(plan: Plan) -> str:
    """``fits: 0.9 GiB of 22.4 GiB; 4 min 50 s``."""
    found = plan.estimate
    memory = f"{format_bytes(found.memory.total_bytes)} of {format_bytes(found.memory_available_bytes)}"
    return f"fits: {memory}; {format_seconds(found.seconds.mid)}" if found.fits else f"does not fit: needs {memory}"
