"""What the first network said of each token of a dataset, kept beside the weights that were trained from it.

``<split>.references`` holds one little-endian float32 for each token of the split: the logarithm of its probability, 0
where it belongs to no answer, or to one that no sequence holds. ``references.json`` says of each file its digest, and
the digest of the split that it is of; a split that it does not name is not whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import digest, file_digest
from trainwright.model.tasks.task import References

FILE = "references.json"
"""Names the files of splits that are whole."""
FORMAT = 1
TYPE = np.dtype("<f4")


def split_digest(dataset: TokenDataset, name: str) -> str:
    """Returns the sha256 over the files of a split."""
    return digest([(path.name, file_digest(path)) for path in sorted(dataset.path.glob(f"{name}-*"))])


def write_split(
    folder: Path, dataset: TokenDataset, name: str, parts: Iterable[tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> None:
    """Writes what belongs at places of a split, and names it when it is whole.

    Args:
        folder: of the training.
        dataset: with the split.
        name: of the split.
        parts: places, and what belongs there; all others are 0.
    """
    path, hidden = _path(folder, name), folder / f".{name}.references"
    tokens = dataset.splits[name].tokens
    hidden.write_bytes(b"")
    if tokens:
        values = np.memmap(hidden, dtype=TYPE, mode="w+", shape=(tokens,))
        for places, here in parts:
            values[places] = here
        values.flush()
        del values
    hidden.replace(path)
    known = {**_known(folder), name: _entry(dataset, name, path)}
    write_atomically(folder / FILE, json.dumps({"format": FORMAT, "splits": known}, indent=1).encode() + b"\n")


def missing_splits(folder: Path, dataset: TokenDataset) -> list[str]:
    """Returns the splits of which nothing whole is there."""
    known = _known(folder)
    return [name for name in dataset.splits if not _is_whole(folder, dataset, name, known)]


def read_references(folder: Path, dataset: TokenDataset) -> References:
    """Returns what is kept of a dataset, by split.

    Raises:
        DataError: nothing is, or of another dataset, or a file is damaged.
    """
    missing = missing_splits(folder, dataset)
    if missing:
        raise DataError(
            "no reference log-probabilities of this dataset are beside these weights",
            where=folder,
            seen=f"none of {', '.join(missing)}" if (folder / FILE).is_file() else f"no {FILE}",
            expected="those that a training with task.loss: dpo on the same dataset leaves there",
            fix="train again with this recipe, or measure by task.loss: orpo, which needs none",
        )
    return {name: _read(folder, name, split.tokens) for name, split in dataset.splits.items()}


def _read(folder: Path, name: str, tokens: int) -> NDArray[np.float32]:
    if not tokens:
        return np.zeros(0, TYPE)
    return np.memmap(_path(folder, name), dtype=TYPE, mode="r", shape=(tokens,))


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.references"


def _known(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Returns what is named; nothing where the file is missing or not of this format."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return dict(record["splits"]) if record["format"] == FORMAT else {}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("damaged list of references", where=path, seen=repr(error), fix="delete it") from error


def _is_whole(folder: Path, dataset: TokenDataset, name: str, known: Mapping[str, Mapping[str, str]]) -> bool:
    path = _path(folder, name)
    if name not in known or not path.is_file():
        return False
    return known[name] == _entry(dataset, name, path)


def _entry(dataset: TokenDataset, name: str, path: Path) -> Mapping[str, str]:
    return {"split": split_digest(dataset, name), "sha256": file_digest(path)}
