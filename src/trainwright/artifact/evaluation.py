"""``evaluation.json``: what the stage writes, and what a table or a page is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.paths import read_object

FILE = "evaluation.json"
FORMAT = 2
"""2: what a task measured stands below ``metrics``, ``record`` and ``details`` of a split; 1: beside them."""


def read_evaluation(path: Path) -> dict[str, Any]:
    """Returns the record at ``path``.

    Raises:
        DataError: no JSON object, or another format.
    """
    record = read_object(path)
    seen = record.get("format")
    if seen != FORMAT:
        fix = "measure again: trainwright evaluate RECIPE"
        raise DataError("unknown format of evaluation", where=path, seen=seen, expected=str(FORMAT), fix=fix)
    return record
