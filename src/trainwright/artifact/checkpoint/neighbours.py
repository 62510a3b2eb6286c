"""Which checkpoint to take in the place of a damaged one; loaded only where one is."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.artifact.checkpoint.index import FORMAT, INDEX, Index, checkpoints_in
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import digest
from trainwright.core.records import from_json


def newest_beside(path: Path) -> Path | None:
    """Returns the newest checkpoint beside this one that is whole, as far as sizes show it; None where none is."""
    others = [each for each in checkpoints_in(path.parent) if each.name != path.name]
    return next((each for each in reversed(others) if whole_by_size(each)), None)


def whole_by_size(path: Path) -> bool:
    """Returns whether a checkpoint's index is right, and every file there and of its size; reads no tensor."""
    try:
        record = json.loads((path / INDEX).read_bytes())
        if (
            not isinstance(record, dict)
            or record.get("format") != FORMAT
            or record.pop("sha256", None) != digest(record)
        ):
            return False
        index = from_json(Index, record, where=str(path))
        return all((path / name).stat().st_size == file.size_bytes for name, file in index.files.items())
    except (OSError, ValueError, DataError):
        return False
