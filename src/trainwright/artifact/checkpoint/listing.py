"""What checkpoints there are, and which of them are whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainwright.artifact.checkpoint.index import FOLDER, FORMAT, INDEX, PREFIX, Index, checkpoints_in, is_checkpoint
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.core.errors import DataError

State = Literal["whole by size", "incomplete", "missing files", "damaged", "other format"]
WHOLE: State = "whole by size"


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A checkpoint's headline; what is not known of a damaged one is None.

    ``damage`` None: every file is there and of its size. Whether the bytes are right takes reading them (``damages``).
    ``state`` is the same in a word.
    """

    path: Path
    step: int | None = None
    size_bytes: int | None = None
    ranks: int | None = None
    layout: Mapping[str, int] = field(default_factory=dict)
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    damage: str | None = None
    state: State = WHOLE


def list_checkpoints(place: Path) -> list[Listed]:
    """Returns the checkpoints of a training, of all trainings of a workspace, or of several workspaces; or one alone.

    Raises:
        DataError: there are none.
    """
    if is_checkpoint(place):
        return [_listed(place)]
    found = [_listed(path) for folder in _folders(place) for path in _steps(folder)]
    if not found:
        expected = f"a checkpoint, a training, its folder {FOLDER}, or a workspace of trainings"
        raise DataError("no checkpoints here", where=place, expected=expected)
    return found


def last_checkpoints(training: Path, count: int) -> list[Path]:
    """Returns the last complete checkpoints of a training, oldest first.

    Raises:
        DataError: there are fewer.
    """
    found = checkpoints_in(training / FOLDER) or checkpoints_in(training)
    if not found:
        raise DataError("no training with checkpoints here", where=training, fix="see: trainwright checkpoint ls")
    if len(found) < count:
        fix = "keep more: train.exec.keep_checkpoints, or train.exec.keep_every_steps"
        seen = ", ".join(path.name for path in found)
        raise DataError("too few checkpoints in this training", where=training, seen=seen, expected=f"{count}", fix=fix)
    return found[len(found) - count :]


def _folders(place: Path) -> Iterator[Path]:
    if any(_steps(place)):
        yield place
        return
    for depth in ("", "*/", "*/*/"):
        yield from sorted(place.glob(f"{depth}{FOLDER}"))


def _steps(folder: Path) -> Iterator[Path]:
    """Yields what is named like a checkpoint, those included of which a kill left a part."""
    for path in sorted(folder.glob(f"{PREFIX}*")) + sorted(folder.glob(f".{PREFIX}*")):
        if path.is_dir():
            yield path


def _listed(path: Path) -> Listed:
    if path.name.startswith(".") or not is_checkpoint(path):
        return Listed(path=path, damage="incomplete: the next start deletes it", state="incomplete")
    try:
        reader = CheckpointReader(path)
    except DataError as error:
        return Listed(path=path, damage=str(error), state=_of_index(path))
    index, problem = reader.index, next(reader.damages(deep=False), None)
    return Listed(
        path=path,
        step=index.step,
        size_bytes=index.size_bytes,
        ranks=index.ranks,
        layout=index.layout,
        loss=index.loss,
        metrics=index.metrics,
        damage=None if problem is None else str(problem),
        state=WHOLE if problem is None else _of_files(path, index),
    )


def _of_index(path: Path) -> State:
    """Returns what a checkpoint is whose index is refused: damaged, or written by a release with another format."""
    try:
        record = json.loads((path / INDEX).read_bytes())
    except (OSError, ValueError):
        return "damaged"
    found = record.get("format") if isinstance(record, dict) else None
    return "other format" if isinstance(found, int) and found != FORMAT else "damaged"


def _of_files(path: Path, index: Index) -> State:
    return "damaged" if all((path / name).is_file() for name in index.files) else "missing files"
