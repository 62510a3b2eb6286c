"""Checkpoints: complete or absent, digested, and all that is needed to go on to the same bits.

``checkpoints/step-00000120/`` holds ``model.json`` ``model.safetensors`` ``tokenizer.json`` (a model bundle of its
own), ``optimizer.safetensors``, ``state.json`` and, written last, ``checkpoint.json`` with every file's digest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor

from trainwright.artifact.events import Events
from trainwright.artifact.model_folder import SHAPE_FILE, TOKENIZER, WEIGHTS
from trainwright.artifact.store import verify_file, write_atomically, writing
from trainwright.core.errors import DataError, TrainingError
from trainwright.core.fingerprint import file_digest
from trainwright.core.records import from_json, to_json
from trainwright.model.network import Network
from trainwright.model.weights import save_weights
from trainwright.spec.manifest import FileEntry
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.world import ALONE, World

INDEX = "checkpoint.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingProgress:
    """Where a run stands: the step decides data, learning rate and all; the rest is a record of what it cost."""

    step: int = 0
    resumes: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[tuple[float, int], ...] = ()
    """Summed loss and targets of the last updates, for the summary."""
    faults: int = 0
    """Updates that were left out or rolled back."""
    passed_over: tuple[int, ...] = ()
    """Batches that rollbacks left out, by their numbers in the whole order of the data."""
    seen: tuple[tuple[float, float], ...] = ()
    """Loss and gradient norm of the updates that a spike is compared with."""

    def spent(self, times: PhaseTimes) -> TrainingProgress:
        """Returns the same place with more time spent on getting there."""
        return replace(self, phases={name: self.phases.get(name, 0.0) + part for name, part in times.as_dict().items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """All that a run goes on from."""

    network: Network
    optimizers: Optimizers
    progress: TrainingProgress


class Pending(Protocol):
    """A checkpoint that is being written; the state may change again as soon as ``save`` has returned."""

    def wait(self) -> Path:
        """Returns the folder once it is complete.

        Raises:
            MachineError: it could not be written.
        """


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint that is complete already."""

    path: Path

    def wait(self) -> Path:
        """Returns the folder."""
        return self.path


class Checkpoints:
    """The checkpoints of one run, newest last; one is complete before the next is begun."""

    def __init__(self, root: Path, *, keep: int, tokenizer: Path, events: Events, world: World = ALONE) -> None:
        self.root = root
        self._world = world
        self._keep = keep
        self._tokenizer = tokenizer
        self._events = events
        if not world.leads:
            return
        root.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in root.glob(".step-*"):
            shutil.rmtree(left_by_a_kill)

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted(path.parent for path in self.root.glob(f"step-*/{INDEX}"))

    def save(self, state: State) -> Pending:
        """Write a checkpoint, then drop the oldest beyond ``keep``.

        Raises:
            MachineError: the disk is full or cannot be written; earlier checkpoints stay.
        """
        final = self.root / f"step-{state.progress.step:08d}"
        weights = whole_on_cpu(state.network.named_parameters(), self._world)
        moments = whole_on_cpu(state.optimizers.tensors(), self._world)
        if self._world.leads:
            self._write(final, state, weights, moments)
        return Written(final)

    def _write(self, final: Path, state: State, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        partial = self.root / f".{final.name}"
        shutil.rmtree(partial, ignore_errors=True)
        if final.exists():
            _drop(final)
        with writing(partial):
            partial.mkdir()
            write_bundle(partial, state.network.spec, weights, self._tokenizer)
            save_weights(partial / "optimizer.safetensors", moments)
            write_atomically(partial / "state.json", json.dumps(asdict(state.progress)).encode())
            entries = [
                FileEntry(path=path.name, size_bytes=path.stat().st_size, sha256=file_digest(path))
                for path in sorted(partial.iterdir())
            ]
            write_atomically(partial / INDEX, json.dumps([to_json(entry) for entry in entries], indent=1).encode())
            partial.rename(final)
        for old in self.paths()[: -self._keep]:
            _drop(old)

    def restore(self, model: Network, optimizers: Optimizers) -> TrainingProgress | None:
        """Load the newest undamaged checkpoint, or None where there is none.

        A damaged one is named in a message and passed over: it is never trained on.

        Raises:
            TrainingError: there are checkpoints, and all of them are damaged.
        """
        damage: list[DataError] = []
        for path in reversed(self.paths()):
            try:
                verify(path)
            except DataError as error:
                damage.append(error)
                self._events.message(f"passing over a damaged checkpoint: {error.where}: {error.what}")
                continue
            return load(path, model, optimizers, self._world)
        if damage:
            raise TrainingError(
                "every checkpoint of this run is damaged",
                where=damage[0].where,
                seen=damage[0].what,
                fix=f"delete {self.root.parent} to train from the start",
            )
        return None


def _drop(path: Path) -> None:
    """Deletes a checkpoint; a kill half-way leaves what the next process deletes, and never takes for a checkpoint."""
    shutil.rmtree(path.rename(path.with_name(f".{path.name}")))


def whole_on_cpu(tensors: Iterable[tuple[str, Tensor]], world: World) -> dict[str, Tensor]:
    """Returns whole tensors by name where this process leads, nothing elsewhere; all processes must ask together."""
    whole = {}
    for name, tensor in world.whole(tensors):
        if world.leads:
            whole[name] = tensor.detach().cpu().contiguous()
    return whole


def write_bundle(directory: Path, spec: ModelSpec, weights: Mapping[str, Tensor], tokenizer: Path) -> None:
    """``model.json``, ``model.safetensors`` and ``tokenizer.json``: enough to build the model and talk to it."""
    write_atomically(directory / SHAPE_FILE, json.dumps(to_json(spec), indent=1).encode() + b"\n")
    save_weights(directory / WEIGHTS, weights)
    shutil.copyfile(tokenizer, directory / TOKENIZER)


def verify(path: Path) -> None:
    """Compare a checkpoint's files with its index.

    Raises:
        DataError: the index cannot be read, or a file is missing or damaged; names it.
    """
    try:
        entries = json.loads((path / INDEX).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError("the checkpoint's index cannot be read", where=path / INDEX, seen=str(error)) from error
    for entry in entries:
        verify_file(path, from_json(FileEntry, entry, where=str(path / INDEX)))


def load(path: Path, model: Network, optimizers: Optimizers, world: World = ALONE) -> TrainingProgress:
    """Take over weights, optimizer state and progress of a verified checkpoint."""
    load_weights(model, load_file(path / WEIGHTS), world)
    optimizers.load(load_file(path / "optimizer.safetensors"), world.part)
    return from_json(TrainingProgress, json.loads((path / "state.json").read_text()), where=str(path / "state.json"))


def load_weights(model: Network, weights: Mapping[str, Tensor], world: World = ALONE) -> None:
    """Copy whole weights into the model by name.

    Raises:
        TrainingError: a name or a shape does not match; names it.
    """
    parameters = dict(model.named_parameters())
    odd = sorted(world.names(parameters) ^ weights.keys())
    if odd:
        raise TrainingError("the weights do not belong to this model", seen=f"{odd[0]!r} on one side only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise TrainingError(
                    "the weight {name!r} does not belong to this model",
                    seen=str(tuple(weights[name].shape)),
                    expected=str(tuple(parameter.shape)),
                    name=name,
                )
            parameter.copy_(world.part(parameter, weights[name]))
