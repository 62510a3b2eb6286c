"""Measured runs that a plan learns from, where a user names them: ``--calibrate FILE``, ``calibrate=...``.

About another machine it is a file of runs of anybody's software; about this one it is a ledger of finished runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import DataError
from trainwright.planner.evidence.ledger import ledgers_of

if TYPE_CHECKING:
    from trainwright.planner.evidence.finished import Ledger

NOTHING = "none"
"""In place of a file: not even from finished runs."""


def with_runs(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns a question's fields with a file's runs, and with their software where all share one and none is asked.

    Raises:
        RecipeError: there is no such file.
        DataError: it cannot be read, or a run in it cannot be used.
    """
    # Reading runs brings pydantic, which a plan without measured runs does not wait for.
    from trainwright.planner.evidence.report import known_runs

    references = tuple(known_runs(path))
    software = {each.placed.run.stack.name for each in references}
    usual = {"stack": software.pop()} if len(software) == 1 else {}
    return usual | dict(fields) | {"references": references}


def ledger_of(named: str | Path | None, *, workspace: Path) -> Ledger | None:
    """Returns the runs to learn from: those of the file that is named, else those of the workspace; None of none.

    Raises:
        RecipeError: there is no such file.
        DataError: it cannot be read, or has no run.
    """
    if named == NOTHING:
        return None
    paths = ledgers_of(workspace) if named is None else (Path(named),)
    if not paths:
        return None
    from trainwright.planner.evidence.finished import read_ledgers

    ledger = read_ledgers(paths)
    if named is not None and not ledger.runs:
        raise DataError(
            "no finished run in this file",
            where=named,
            field="calibrate",
            seen=ledger.broken[0] if ledger.broken else "nothing",
            expected="lines of a ledger.jsonl; for other runs say the machine: `on`",
        )
    return ledger
