"""Loads the parts that this process needs of a checkpoint that any layout wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from trainwright.artifact.checkpoint.index import STATE, IndexedTensor
from trainwright.artifact.checkpoint.reader import CheckpointReader
from trainwright.core.errors import DataError, TrainingError
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.model.network import Network
from trainwright.runtime.stored_tensors import tensor_of
from trainwright.stages.train.checkpoints import TrainingProgress
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.world import World


def damage(path: Path, world: World) -> DataError | None:
    """Returns the first damage that any rank finds in a checkpoint; each looks at its share of the files."""
    found: DataError | None = None
    try:
        reader = CheckpointReader(path)
        mine = sorted(reader.index.files)[world.rank :: world.ranks]
        found = next(reader.damages(mine), None)
    except DataError as error:
        found = error
    return next((each for each in world.gathered(found) if each is not None), None)


def restored(path: Path, model: Network, optimizers: Optimizers, world: World) -> TrainingProgress:
    """Takes over weights, optimizer state and progress of an undamaged checkpoint; all processes must ask together.

    Raises:
        TrainingError: it is of another model.
        DataError: it is damaged all the same.
    """
    load_tensors(CheckpointReader(path), dict(model.stored()), optimizers, world)
    return from_json(TrainingProgress, read_object(path / STATE), where=str(path / STATE))


def load_tensors(
    reader: CheckpointReader, parameters: Mapping[str, Tensor], optimizers: Optimizers, world: World
) -> None:
    """Fills this process's parts of the parameters and of the optimizer's state; all processes must ask together.

    Raises:
        TrainingError: a name or a shape does not match; names it.
        DataError: the pieces do not make a part that is needed.
    """
    index = reader.index
    problem = _misfit(index.model, parameters, world)
    for each in world.gathered(problem):
        if each is not None:
            raise each
    with torch.no_grad():
        for name, parameter in parameters.items():
            (here,) = world.local((parameter.detach(),))
            _, offsets = world.placement(name, parameter)
            here.copy_(_read(reader, name, index.model[name], offsets, tuple(here.shape)))
    optimizers.load(dict(_states(reader, parameters, world)), world.laid_out)


def _states(reader: CheckpointReader, parameters: Mapping[str, Tensor], world: World) -> Iterator[tuple[str, Tensor]]:
    """Yields this process's part of each state: its parameter's rows of it; what has other rows lies whole on all."""
    for name, tensor in reader.index.optimizer.items():
        parameter_name = name.rpartition(".")[0]
        if parameter_name not in parameters:
            continue
        parameter = parameters[parameter_name]
        (here,) = world.local((parameter.detach(),))
        whole, offsets = world.placement(parameter_name, parameter)
        part: tuple[int, ...] = tuple(here.shape)
        if len(tensor.shape) != len(whole) or tensor.shape[:1] != whole[:1]:
            offsets, part = (0,) * len(tensor.shape), tensor.shape
        elif tensor.shape != whole:  # a scale for many columns
            offsets, part = (offsets[0], *(0 for _ in whole[1:])), (part[0], *tensor.shape[1:])
        yield name, _read(reader, name, tensor, offsets, part)


def _misfit(model: Mapping[str, IndexedTensor], parameters: Mapping[str, Tensor], world: World) -> TrainingError | None:
    names = {name for theirs in world.gathered(list(parameters)) for name in theirs}
    odd = sorted(names ^ model.keys())
    if odd:
        return TrainingError("the weights do not belong to this model", seen=f"{odd[0]!r} on one side only")
    for name, parameter in parameters.items():
        whole, _ = world.placement(name, parameter)
        if model[name].shape != whole:
            seen, expected = str(model[name].shape), str(whole)
            return TrainingError(
                "the weight {name!r} does not belong to this model", seen=seen, expected=expected, name=name
            )
    return None


def _read(
    reader: CheckpointReader, name: str, tensor: IndexedTensor, offsets: Sequence[int], shape: Iterable[int]
) -> Tensor:
    shape = tuple(shape)
    return tensor_of(reader.region(name, tensor, offsets, shape), tensor.dtype, shape)
