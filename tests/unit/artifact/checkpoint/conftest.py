"""Small checkpoints, written piece by piece as ranks would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trainwright.artifact.checkpoint.index import INDEX, Index, IndexedFile, IndexedTensor, Piece, index_bytes
from trainwright.artifact.checkpoint.tensor_file import TensorBytes, write_tensors
from trainwright.core.fingerprint import file_digest

Cuts = Mapping[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]
"""Offsets and shape of each piece, by tensor; a tensor without any lies whole in the first file."""


def write(folder: Path, tensors: Mapping[str, np.ndarray], cuts: Cuts | None = None, **facts) -> Path:
    """A checkpoint of fp32 tensors; the n-th piece of each lies in the n-th file, ``momentum`` is the optimizer's."""
    folder.mkdir(parents=True)
    indexed: dict[str, IndexedTensor] = {}
    inside: dict[str, dict[str, TensorBytes]] = {}
    places: dict[str, list[tuple[str, tuple[int, ...], tuple[int, ...]]]] = {}
    for name, whole in tensors.items():
        for rank, (offsets, shape) in enumerate((cuts or {}).get(name) or [((0,) * whole.ndim, whole.shape)]):
            part = whole[tuple(slice(at, at + size) for at, size in zip(offsets, shape, strict=True))]
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            file = f"model-{rank}.safetensors"
            inside.setdefault(file, {})[name] = TensorBytes(dtype="F32", shape=tuple(shape), data=[data])
            places.setdefault(name, []).append((file, tuple(offsets), tuple(shape)))
    files, digests = {}, {}
    for file, each in inside.items():
        done = write_tensors(folder / file, each)
        files[file] = IndexedFile(size_bytes=done.size_bytes, sha256=done.header_sha256)
        digests[file] = done.tensors
    for name, pieces in places.items():
        stored = tuple(
            Piece(file=file, offsets=offsets, shape=shape, sha256=digests[file][name])
            for file, offsets, shape in pieces
        )
        indexed[name] = IndexedTensor(dtype="F32", shape=tensors[name].shape, pieces=stored)
    for name in ("model.json", "tokenizer.json"):
        (folder / name).write_text("{}")
        files[name] = IndexedFile(size_bytes=2, sha256=file_digest(folder / name))
    index = Index(step=7, ranks=len(inside), layout={}, loss=1.5, writer="0", files=files, model={}, optimizer={})
    optimizer = {name: indexed.pop(name) for name in list(indexed) if name.endswith("momentum")}
    index = replace(index, model=indexed, optimizer=optimizer, **facts)
    (folder / INDEX).write_bytes(index_bytes(index))
    return folder


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    """Writes a checkpoint."""
    return write


@pytest.fixture(scope="session")
def tensors() -> dict[str, np.ndarray]:
    """A matrix, a vector and a state of the matrix."""
    dice = np.random.default_rng(1)
    shapes = {"matrix": (6, 4), "vector": (5,), "matrix.momentum": (6, 4), "scale": ()}
    return {name: np.asarray(dice.standard_normal(shape), np.float32) for name, shape in shapes.items()}
