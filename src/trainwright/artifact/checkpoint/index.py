"""``Index``: what a checkpoint holds, tensor by tensor; written last, so that present means complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.fingerprint import digest
from trainwright.core.records import from_json, to_json
from trainwright.core.registry import load
from trainwright.core.spelling import counted

INDEX = "checkpoint.json"
FOLDER = "checkpoints"
"""Of a training: where its checkpoints are."""
FORMAT = 2
MODEL, OPTIMIZER, STATE = "model", "optimizer", "state.json"
PREFIX = "step-"
AVERAGE = "average"
"""State of a parameter: the moving average of its weights, where the run keeps one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A rectangle of a tensor.

    Attributes:
        file: where it lies, under the tensor's own name.
        offsets: of its first element in the whole tensor, one for each dim.
        shape: its own.
        sha256: of its bytes.
    """

    file: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedTensor:
    """A whole tensor: dtype by safetensors' name, shape, and the pieces that it was written in; they never overlap."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedFile:
    """A file: its size and the sha256 of all its bytes, or of a safetensors file the sha256 of its header."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """What a checkpoint holds.

    Attributes:
        step: updates that were made.
        ranks: processes that wrote it.
        layout: the axes of their mesh that have more than one rank.
        loss: mean training loss of the last updates before it; None where none is known.
        metrics: what was measured on the validation split at this very step.
        writer: version of trainwright.
        files: by name.
        model: tensors of the network, by name.
        optimizer: tensors of the optimizer's state, ``<parameter>.<state>``.
    """

    step: int
    ranks: int
    layout: Mapping[str, int]
    loss: float | None
    writer: str
    files: Mapping[str, IndexedFile]
    model: Mapping[str, IndexedTensor]
    optimizer: Mapping[str, IndexedTensor]
    metrics: Mapping[str, float] = field(default_factory=dict)
    format: int = FORMAT

    def tensors(self) -> Iterator[tuple[str, IndexedTensor]]:
        """Yields every tensor with its name."""
        yield from self.model.items()
        yield from self.optimizer.items()

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of all files."""
        return sum(file.size_bytes for file in self.files.values())


def index_bytes(index: Index) -> bytes:
    """Returns an index's file: JSON with the sha256 of its canonical other members."""
    record = to_json(index)
    return json.dumps({"sha256": digest(record)} | record, separators=(",", ":")).encode() + b"\n"


def read_index(path: Path) -> Index:
    """Returns the index in a checkpoint's folder.

    Raises:
        DataError: it is missing, damaged or of another format; says which checkpoint may have been meant.
    """
    where, expected = path / INDEX, f"a folder {PREFIX}... with {INDEX}"
    try:
        data = where.read_bytes()
    except FileNotFoundError as error:
        raise DataError("no complete checkpoint here", where=path, expected=expected, fix=_meant(path)) from error
    except NotADirectoryError as error:
        raise DataError("not a folder", where=path, expected=expected) from error
    except OSError as error:
        raise DataError("the checkpoint's index cannot be read", where=where, seen=error.strerror) from error
    try:
        record: Any = json.loads(data)
    except ValueError as error:
        seen = f"{counted(len(data), 'byte')} that are no JSON" if data else "an empty file"
        raise DataError("the checkpoint's index cannot be read", where=where, seen=seen, fix=another(path)) from error
    found = record.get("format") if isinstance(record, dict) else 1
    if found != FORMAT:
        raise DataError(
            "this checkpoint was written in another format", where=where, seen=f"{found}", expected=f"format {FORMAT}"
        )
    recorded = record.pop("sha256", None)
    if (seen := digest(record)) != recorded:
        raise DataError("damaged index: its own sha256 does not match", where=where, seen=seen, fix=another(path))
    return from_json(Index, record, where=str(where))


def another(path: Path) -> str | None:
    """Returns what to do without a damaged checkpoint: its newest neighbour that is whole; None where it has none."""
    other: Path | None = load("trainwright.artifact.checkpoint.neighbours:newest_beside", kind="checkpoint")(path)
    return None if other is None else f"go on from another step: {other}"


def _meant(path: Path) -> str | None:
    """Returns which checkpoint a folder without an index may stand for: the newest in a training, or one of a list."""
    found = checkpoints_in(path) or checkpoints_in(path / FOLDER)
    if found:
        return f"name one, such as the newest: {found[-1]}"
    others = another(path) if path.name.startswith(PREFIX) else None
    return others or (f"list what there is: trainwright checkpoint ls {path}" if path.is_dir() else None)


def is_checkpoint(path: Path) -> bool:
    """Returns whether a folder is a complete checkpoint."""
    return (path / INDEX).is_file()


def checkpoints_in(root: Path) -> list[Path]:
    """Returns the complete checkpoints in a folder, oldest first."""
    return sorted(path.parent for path in root.glob(f"{PREFIX}*/{INDEX}"))


def folder_of(step: int) -> str:
    """Returns the name of a step's folder."""
    return f"{PREFIX}{step:08d}"


def step_of(path: Path) -> int:
    """Returns the step of a checkpoint's folder."""
    return int(path.name.removeprefix(PREFIX))
