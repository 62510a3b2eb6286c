"""The stage: ``plan.json`` and training's ``summary.json`` in, ``audit.json`` and a line of the ledger out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright import __version__
from trainwright.artifact.events import Events
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.errors import DataError
from trainwright.core.records import from_json, to_json
from trainwright.planner.audit import audit, ledger_line
from trainwright.planner.published.ledger import FILE, same_run
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Compare prediction and measurement.

    Raises:
        DataError: the plan or the summary is damaged or cannot be read.
    """
    inputs["plan"].verify()
    inputs["train"].verify({"summary.json"})
    plan_file, summary_file = inputs["plan"].file("plan.json"), inputs["train"].file("summary.json")
    plan = from_json(Plan, _read(plan_file), where=str(plan_file))
    try:
        found = audit(plan, _read(summary_file))
    except KeyError as error:
        raise DataError("the training summary cannot be audited", where=summary_file, seen=str(error)) from error
    write_atomically(out / "audit.json", json.dumps(to_json(found), indent=1).encode() + b"\n")
    trained = inputs["train"].manifest
    done = trained.execution
    versions = dict(done.get("packages", {})) | {"trainwright": done.get("trainwright", __version__)}
    finished = done.get("started_unix_s", time.time()) + done.get("seconds", 0.0)
    line = ledger_line(
        plan, found, run=trained.fingerprint, finished_unix_s=round(finished, 3), versions=versions
    )  # fmt: skip
    _append(out.parent / FILE, line)
    events.message(
        f"measured / predicted: training time {found.seconds_ratio:.2f}, peak memory {found.memory_ratio:.2f}"
    )
    return StageResult(
        summary={
            "run": recipe.name, "seconds_ratio": round(found.seconds_ratio, 4),
            "memory_ratio": round(found.memory_ratio, 4),
            "within": all(row.within is not False for row in found.rows),
        }
    )  # fmt: skip


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError("this file cannot be read", where=path, seen=str(error)) from error


def _append(ledger: Path, line: Mapping[str, Any]) -> None:
    """Add the line unless the same measurement stands there already: an audit that is made again counts once."""
    known = ledger.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if ledger.is_file() else []
    kept = [text for text in known if not same_run(text, line)]
    text = "\n".join([*kept, json.dumps(line)]) + "\n"
    write_atomically(ledger, text.encode(errors="surrogateescape"))
