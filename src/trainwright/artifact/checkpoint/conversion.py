"""Makes a model bundle of one checkpoint, or of the mean of several; any number of ranks wrote them.

One tensor is in memory at a time, and of a mean the sum in fp64.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path

import numpy as np

from trainwright.artifact.checkpoint.index import AVERAGE, IndexedTensor
from trainwright.artifact.checkpoint.numbers import FLOATS, as_numbers, as_stored
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.artifact.checkpoint.tensor_file import Bytes, TensorBytes, write_tensors
from trainwright.artifact.model_folder import (
    ADAPTERS,
    CHAT_TEMPLATE,
    SHAPE_FILE,
    TARGET_SCALE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
)
from trainwright.artifact.store import sync_directory, writing
from trainwright.core.errors import DataError, MachineError, RecipeError
from trainwright.core.fingerprint import file_digest


def convert(checkpoint: Path, folder: Path, *, averaged: bool = False) -> int:
    """Writes ``model.json``, ``model.safetensors`` and ``tokenizer.json`` into a new folder; returns their bytes.

    Args:
        checkpoint: of any layout.
        folder: that is written.
        averaged: take the moving average of the weights in their place.

    Raises:
        DataError: the checkpoint is damaged; names the tensor and the file.
        RecipeError: the folder exists, or the run kept no average.
        MachineError: it cannot be written; nothing of it is left.
    """
    reader = CheckpointReader(checkpoint)
    tensors = {**reader.index.model, **reader.index.optimizer}
    averages = {name: f"{name}.{AVERAGE}" for name in reader.index.model if f"{name}.{AVERAGE}" in tensors}
    stored = {name: averages.get(name, name) if averaged else name for name in reader.index.model}
    if averaged and not averages:
        raise RecipeError("the run kept no average of its weights", where="--averaged", seen=checkpoint)
    for problem in reader.damages():
        raise problem
    chosen = {name: (key, tensors[key]) for name, key in stored.items()}
    return _write_bundle(
        checkpoint,
        folder,
        {
            name: TensorBytes(dtype=tensor.dtype, shape=tensor.shape, data=_once(reader, key, tensor))
            for name, (key, tensor) in chosen.items()
        },
    )


def average(checkpoints: Sequence[Path], folder: Path) -> int:
    """Writes a bundle whose weights are the mean of those of several checkpoints; returns its bytes.

    The mean is taken in fp64 and rounded at the end, so that layouts do not matter. What is no number of floating
    point, or one of 8 bits, is the last one's. (Vaswani et al., 2017, section 6.1, average the last 5 or 20; Izmailov
    et al., 2018, arXiv 1803.05407, say why it helps.)

    Args:
        checkpoints: two or more of one network; the last of them gives everything beside the weights.
        folder: that is written.

    Raises:
        DataError: one of them is damaged, or is of another network or tokenizer.
        RecipeError: there are fewer than two, or they have adapters; or the folder exists.
        MachineError: it cannot be written; nothing of it is left.
    """
    if len({path.resolve() for path in checkpoints}) < max(2, len(checkpoints)):
        seen = ", ".join(map(str, checkpoints)) or "none"
        raise RecipeError("a mean is of several checkpoints", seen=seen, expected="two or more, each once")
    if adapting := next((path for path in checkpoints if (path / ADAPTERS).is_file()), None):
        raise RecipeError(
            "the mean of adapters' factors is not that of what they add",
            where=adapting,
            fix="average trainings of all weights",
        )
    readers = [CheckpointReader(path) for path in checkpoints]
    last = readers[-1]
    for reader in readers:
        _check_same(reader, last)
    for reader in readers:
        for problem in reader.damages():
            raise problem
    return _write_bundle(
        last.path,
        folder,
        {
            name: TensorBytes(dtype=tensor.dtype, shape=tensor.shape, data=_mean(readers, name, tensor))
            for name, tensor in last.index.model.items()
        },
    )


def _check_same(reader: CheckpointReader, last: CheckpointReader) -> None:
    """Raises a DataError where two checkpoints are not of one network and tokenizer."""
    for name in (SHAPE_FILE, TOKENIZER):
        digests = [file_digest(path) if (path := each.path / name).is_file() else None for each in (reader, last)]
        if digests[0] != digests[1]:
            raise DataError("the checkpoints are of two models: {name} differs", where=reader.path, name=name)
    mine, other = ({name: (t.dtype, t.shape) for name, t in each.index.model.items()} for each in (reader, last))
    if mine != other:
        first = min(name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name))
        raise DataError(
            "the checkpoints are of two networks: {name} differs",
            where=reader.path,
            seen=mine.get(first),
            expected=str(other.get(first)),
            name=first,
        )


def _mean(readers: Sequence[CheckpointReader], name: str, tensor: IndexedTensor) -> Iterator[Bytes]:
    if tensor.dtype not in FLOATS:
        yield readers[-1].whole(name, tensor)
        return
    total = np.zeros(prod(tensor.shape))
    for reader in readers:
        numbers = as_numbers(reader.whole(name, reader.index.model[name]), tensor.dtype)
        assert numbers is not None
        total += numbers
    yield as_stored(total / len(readers), tensor.dtype)


def _write_bundle(checkpoint: Path, folder: Path, tensors: Mapping[str, TensorBytes]) -> int:
    """Writes a new folder with these weights and a checkpoint's other files, whole or not at all; returns its bytes."""
    with new_folder(folder) as partial:
        for name in (SHAPE_FILE, TOKENIZER, ADAPTERS, CHAT_TEMPLATE, TOKENIZER_CONFIG, TARGET_SCALE):
            if name in (SHAPE_FILE, TOKENIZER) or (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, partial / name)
        write_tensors(partial / WEIGHTS, tensors)
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder to fill, which gets its name at the end of the block; where that fails, nothing of it is left.

    Raises:
        RecipeError: the folder exists.
        MachineError: it cannot be written.
    """
    if folder.exists():
        raise RecipeError("the folder is there already", where="FOLDER", seen=folder, fix="name another one")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with writing(partial), ExitStack() as unfinished:
            unfinished.callback(shutil.rmtree, partial, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
            with writing(Path(partial.anchor)):  # a folder above it may be one in which none can be made
                partial.mkdir(parents=True)
            yield partial
            partial.rename(folder)
            unfinished.pop_all()
            sync_directory(folder.parent)
    except MachineError as error:
        raise error.at(folder).with_fix("mend this, or name another FOLDER; nothing of it is left here") from error


def _once(reader: CheckpointReader, name: str, tensor: IndexedTensor) -> Iterator[Bytes]:
    yield reader.whole(name, tensor)
