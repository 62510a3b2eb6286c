"""How far two checkpoints are from each other, tensor by tensor, whatever layouts wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.checkpoint.index import IndexedTensor
from trainwright.artifact.checkpoint.numbers import as_numbers
from trainwright.artifact.checkpoint.reader import CheckpointReader


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorDifference:
    """A tensor that differs.

    Attributes:
        name: of the tensor.
        kind: why: ``missing`` on one side, another ``shape`` or ``dtype``, or other ``values``.
        seen: of the first checkpoint, where it says more.
        expected: of the second one.
        elements: how many differ.
        max_abs: the largest difference; NaN where one of the two numbers is none, None where values were not compared.
        relative: the norm of the difference over that of the second tensor.
    """

    name: str
    kind: str
    seen: str | None = None
    expected: str | None = None
    elements: int | None = None
    max_abs: float | None = None
    relative: float | None = None


def differences(first: Path, second: Path) -> Iterator[TensorDifference]:
    """Yields each tensor of the model and of the optimizer's state that is not the same in both checkpoints.

    Every byte of both is read first: an index says what was written, not what lies there now.

    Raises:
        DataError: one of them is damaged or incomplete; names the file.
    """
    ours, theirs = CheckpointReader(first), CheckpointReader(second)
    for reader in (ours, theirs):
        for problem in reader.damages():
            raise problem
    for mine, other in ((ours.index.model, theirs.index.model), (ours.index.optimizer, theirs.index.optimizer)):
        for name in sorted(mine.keys() | other.keys()):
            yield from _of_tensor(name, ours, mine, theirs, other)


def _of_tensor(
    name: str,
    ours: CheckpointReader,
    mine: Mapping[str, IndexedTensor],
    theirs: CheckpointReader,
    other: Mapping[str, IndexedTensor],
) -> Iterator[TensorDifference]:
    if name not in mine or name not in other:
        seen, expected = ("there" if name in each else "missing" for each in (mine, other))
        yield TensorDifference(name=name, kind="missing", seen=seen, expected=expected)
        return
    for kind in ("dtype", "shape"):
        seen, expected = (getattr(each[name], kind) for each in (mine, other))
        if seen != expected:
            yield TensorDifference(name=name, kind=kind, seen=str(seen), expected=str(expected))
            return
    if mine[name].pieces != () and [p.sha256 for p in mine[name].pieces] == [p.sha256 for p in other[name].pieces]:
        return
    a, b = ours.whole(name, mine[name]), theirs.whole(name, other[name])
    if not np.array_equal(a, b):
        yield _values(name, mine[name].dtype, a, b)


def _values(name: str, dtype: str, a: NDArray[np.uint8], b: NDArray[np.uint8]) -> TensorDifference:
    x, y = as_numbers(a, dtype), as_numbers(b, dtype)
    if x is None or y is None:
        return TensorDifference(name=name, kind="values")
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(x - y)
        norm = float(np.linalg.norm(y))
        relative = float(np.linalg.norm(distance)) / norm if norm else float("inf")
    # Bits, so that NaN equals itself, and 0.0 is not -0.0.
    elements = int((a.reshape(x.size, -1) != b.reshape(x.size, -1)).any(axis=1).sum())
    return TensorDifference(
        name=name, kind="values", elements=elements, max_abs=float(distance.max()), relative=relative
    )
