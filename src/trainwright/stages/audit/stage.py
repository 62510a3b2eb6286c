"""The stage: the plan and what training measured in, ``audit.json`` and a line of the ledger out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from trainwright import __version__
from trainwright.artifact.model_folder import SHAPE_FILE
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.artifact.summaries import AuditSummary
from trainwright.core.errors import DataError
from trainwright.core.records import from_json, to_json
from trainwright.planner.evidence.audit import Audit, audit, ledger_line
from trainwright.planner.evidence.ledger import FILE, same_run
from trainwright.render.results.audit import verdict
from trainwright.spec.manifest import Manifest
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.summary import TrainSummary

T = TypeVar("T")


def run(context: Context) -> StageResult:
    """Compares prediction and measurement, and adds the comparison to the ledger.

    Raises:
        DataError: the plan or the summary is damaged or cannot be read.
    """
    planned, trained = context.input("plan"), context.input("checkpoint")
    planned.verify()
    trained.verify({"summary.json", SHAPE_FILE})
    plan = read_plan(planned.file(PLAN))
    measured = _read(TrainSummary, trained.file("summary.json"))
    comparison = audit(plan, measured)
    write_atomically(context.out / "audit.json", json.dumps(to_json(comparison), indent=1).encode() + b"\n")
    model = _read(ModelSpec, trained.file(SHAPE_FILE))
    _append(context.root / FILE, _ledger_line(plan, comparison, model, measured.steps, trained.manifest))
    if measured.share_made < 1:
        context.events.message(f"training stopped early: the plan's numbers are those of its {measured.steps:,} steps")
    context.events.message(verdict(comparison))
    summary = AuditSummary(
        run=context.recipe.name,
        seconds_ratio=round(comparison.seconds_ratio, 4),
        memory_ratio=round(comparison.memory_ratio, 4),
        time_within_range=all(row.within is not False for row in comparison.rows),
    )
    return StageResult(summary=to_json(summary))


def _ledger_line(plan: Plan, comparison: Audit, model: ModelSpec, steps: int, trained: Manifest) -> dict[str, Any]:
    """Returns the ledger's line for a training run: ``trained`` says when it ended and with which packages."""
    execution = trained.execution
    versions = dict(execution.get("packages", {})) | {"trainwright": execution.get("trainwright", __version__)}
    finished_unix_s = execution.get("started_unix_s", time.time()) + execution.get("seconds", 0.0)
    return ledger_line(
        plan,
        comparison,
        model=model,
        steps=steps,
        run=trained.fingerprint,
        finished_unix_s=round(finished_unix_s, 3),
        versions=versions,
    )


def _read(kind: type[T], path: Path) -> T:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError("this file cannot be read", where=path, seen=str(error)) from error
    return from_json(kind, record, where=str(path))


def _append(ledger: Path, line: Mapping[str, Any]) -> None:
    """Adds the line unless the same measurement stands there already: an audit that is made again counts once."""
    known = ledger.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if ledger.is_file() else []
    kept = [text for text in known if not same_run(text, line)]
    text = "\n".join([*kept, json.dumps(line)]) + "\n"
    write_atomically(ledger, text.encode(errors="surrogateescape"))
