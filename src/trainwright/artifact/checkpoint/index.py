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

INDEX = "checkpoint.json"
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
        DataError: it is missing, damaged or of another format.
    """
    where = path / INDEX
    try:
        record: Any = json.loads(where.read_bytes())
    except FileNotFoundError as error:
        raise DataError("no complete checkpoint here", where=path, expected=f"a folder with {INDEX}") from error
    except (OSError, ValueError) as error:
        raise DataError("the checkpoint's index cannot be read", where=where, seen=str(error)) from error
    found = record.get("format") if isinstance(record, dict) else 1
    if found != FORMAT:
        raise DataError(
            "this checkpoint was written in another format", where=where, seen=f"{found}", expected=f"format {FORMAT}"
        )
    expected = record.pop("sha256", None)
    if digest(record) != expected:
        raise DataError("damaged index: its own sha256 does not match", where=where, seen=digest(record))
    return from_json(Index, record, where=str(where))


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
