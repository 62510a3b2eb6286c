"""Our own ledgers of finished runs: where they are, and what a line of one holds.

The audit appends a line of JSON for each run to the ledger of its workspace; ``planner.evidence.finished`` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from trainwright.spec.measures import STEP_PHASES
from trainwright.spec.model import Unit

FILE = "ledger.jsonl"
"""In the workspace, beside the artefacts: one line for each audited run."""
FORMAT = 2
"""Since then a line says which machine and which torch it was measured on."""
TOGETHER = "runs"
"""A folder of this name holds workspaces whose runs are one user's: they learn from each other."""
MEMORY = "run/peak memory"
SPEEDS = tuple(f"run/{unit} per second" for unit in get_args(Unit))
"""Rows of a ledger line, each a pair of predicted and measured; of the speeds it has one."""


def ledgers_of(workspace: Path) -> tuple[Path, ...]:
    """Returns the ledgers that a workspace learns from: its own, then those beside it where they are kept together."""
    folder = workspace.absolute().parent
    beside = sorted(folder.glob(f"*/{FILE}")) if folder.name == TOGETHER else []
    paths = (workspace / FILE, *(path for path in beside if path.parent != workspace.absolute()))
    return tuple(path for path in paths if path.is_file())


def step_s(rows: Mapping[str, Any]) -> float:
    """Returns the measured seconds of a step without what a run does once, by rows ``step/...``; 0 without any."""
    return float(sum(rows[f"step/{name}"][1] for name in STEP_PHASES if f"step/{name}" in rows))


def same_run(line: str, other: Mapping[str, Any]) -> bool:
    """Returns True where a line of a ledger holds the same measurement: another audit of one run, not another run."""
    try:
        known = json.loads(line)
    except ValueError:
        return False
    if not isinstance(known, dict) or known.get("run") != other["run"]:
        return False
    rows, others = known.get("rows"), other["rows"]
    if not isinstance(rows, dict):
        return False
    return any(rows[name][-1] == others[name][-1] for name in SPEEDS if name in rows and name in others)


def is_ledger(run: Mapping[str, Any]) -> bool:
    """Returns True where a JSON object is a line of the ledger."""
    return {"model", "workload", "rows", "device"} <= set(run)
