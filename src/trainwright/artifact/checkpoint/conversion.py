"""Makes a model bundle of a checkpoint that any number of ranks wrote; one tensor is in memory at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from trainwright.artifact.checkpoint.index import AVERAGE, IndexedTensor
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.artifact.checkpoint.tensor_file import Bytes, TensorBytes, write_tensors
from trainwright.artifact.model_folder import ADAPTERS, CHAT_TEMPLATE, SHAPE_FILE, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from trainwright.artifact.store import sync_directory, writing
from trainwright.core.errors import MachineError, RecipeError


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
    if folder.exists():
        raise RecipeError("the folder is there already", where="FOLDER", seen=folder, fix="name another one")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with writing(partial), ExitStack() as unfinished:
            unfinished.callback(shutil.rmtree, partial, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for name in (SHAPE_FILE, TOKENIZER, ADAPTERS, CHAT_TEMPLATE, TOKENIZER_CONFIG):
                if name in (SHAPE_FILE, TOKENIZER) or (checkpoint / name).is_file():
                    shutil.copyfile(checkpoint / name, partial / name)
            write_tensors(
                partial / WEIGHTS,
                {
                    name: TensorBytes(dtype=tensor.dtype, shape=tensor.shape, data=_once(reader, key, tensor))
                    for name, key, tensor in ((name, key, tensors[key]) for name, key in stored.items())
                },
            )
            partial.rename(folder)
            unfinished.pop_all()
            sync_directory(folder.parent)
    except MachineError as error:
        raise error.at(folder).with_fix("mend this, or name another FOLDER; nothing of it is left here") from error
    return sum(path.stat().st_size for path in folder.iterdir())


def _once(reader: CheckpointReader, name: str, tensor: IndexedTensor) -> Iterator[Bytes]:
    yield reader.whole(name, tensor)
