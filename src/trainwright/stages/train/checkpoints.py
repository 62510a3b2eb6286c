"""Checkpoints: complete or absent, digested, and all that is needed to go on to the same bits.

``checkpoints/step-00000120/`` holds ``model.json`` ``tokenizer.json`` ``state.json``, each rank's pieces of weights and
optimizer state, and, written last, ``checkpoint.json`` with the digest of every tensor (docs/formats/checkpoint.md).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from trainwright import __version__
from trainwright.artifact.checkpoint.index import (
    MODEL,
    OPTIMIZER,
    STATE,
    Index,
    checkpoints_in,
    folder_of,
    step_of,
)
from trainwright.artifact.events import Events
from trainwright.artifact.model_folder import (
    ADAPTERS,
    CHAT_TEMPLATE,
    IMAGE_PROCESSOR,
    SHAPE_FILE,
    TARGET_SCALE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
)
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError, MachineError, TrainingError, in_one_line
from trainwright.core.records import to_json
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.weights import save_weights
from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import mean_loss
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.saving.keeping import Policy, measured
from trainwright.stages.train.saving.pieces import HostCopy
from trainwright.stages.train.saving.writing import Save, Writing, drop
from trainwright.stages.train.world import ALONE, World

if TYPE_CHECKING:
    from trainwright.stages.train.saving.elsewhere import Mirror

READING = "trainwright.stages.train.saving.reading"
"""Loaded where there is a checkpoint to go on from."""


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
    loss_scale: float | None = None
    """What losses are multiplied by from here on; None where they are not."""
    steady_updates: int = 0
    """Updates without an overflow since that changed."""
    overflows: int = 0
    """Updates that were left out because a scaled gradient left the range of its dtype."""
    best: float | None = None
    """The best validation that early stopping saw, better by its ``min_delta`` than the best before."""
    waited: int = 0
    """Validations since."""
    stopped_early: bool = False
    """They were as many as its patience."""

    def spent(self, times: PhaseTimes) -> TrainingProgress:
        """Returns the same place with more time spent on getting there."""
        return replace(self, phases={name: self.phases.get(name, 0.0) + part for name, part in times.as_dict().items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """All that a run goes on from; ``metrics``: what was measured on the validation split at this very step."""

    network: Network
    optimizers: Optimizers
    progress: TrainingProgress
    metrics: Mapping[str, float] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one run, newest last; one is complete before the next is begun."""

    def __init__(
        self,
        root: Path,
        *,
        keep: int | Policy,
        tokenizer: Path,
        events: Events,
        world: World = ALONE,
        elsewhere: Mirror | None = None,
    ) -> None:
        """Deletes what kills left of checkpoints; all processes must do so together.

        Args:
            root: their folder, which all processes see.
            keep: how many of the newest, or which.
            tokenizer: the file that goes into each.
            events: where a damaged one is told of.
            world: the processes that train together.
            elsewhere: another place that each goes to.
        """
        self.root = root
        self._world = world
        self._policy = Policy(last=keep) if isinstance(keep, int) else keep
        self._tokenizer = tokenizer
        self._events = events
        self._elsewhere = elsewhere
        self._copy = HostCopy()
        self._writing: Writing | None = None
        self._exchange = world.beside()
        self.longest_write_s = 0.0
        """Seconds of the longest write so far, from the copy to the last rename."""
        if not world.leads:
            return
        root.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in root.glob(".step-*"):
            shutil.rmtree(left_by_a_kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leaves no write under way, whatever ended the training; a second Ctrl-C waits for nothing."""
        if self._writing is not None and not (kind is not None and issubclass(kind, KeyboardInterrupt)):
            self._writing.join()
        self.tell()

    def tell(self) -> None:
        """Tells people what the other place refused since the last call."""
        while self._elsewhere is not None and self._elsewhere.said:
            text = self._elsewhere.said.pop(0)
            if self._world.leads:
                self._events.message(text)

    @property
    def copy_bytes(self) -> int:
        """Returns bytes of the copy of the state in the host's memory, which is there from the first checkpoint on."""
        return self._copy.size_bytes

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first; waits for the one that is being written. Raises as ``Writing.wait``."""
        self._settle()
        return checkpoints_in(self.root)

    def save(self, state: State) -> Writing:
        """Copies the state and begins to write it, after the write before; then what the policy drops is deleted.

        Raises:
            MachineError: the write before failed; earlier checkpoints stay.
        """
        self._settle()
        tensors = (
            *((MODEL, name, tensor) for name, tensor in state.network.stored()),
            *((OPTIMIZER, name, tensor) for name, tensor in state.optimizers.tensors()),
        )
        copies = self._copy.take(tensors, self._world)
        job = Save(
            final=self.root / folder_of(state.progress.step),
            rank=self._world.rank,
            index=self._index(state),
            copies=copies,
            exchange=self._exchange,
            small=partial(_write_small, network=state.network, tokenizer=self._tokenizer, progress=state.progress),
            complete=self._drop_others,
            elsewhere=self._elsewhere,
        )
        self._writing = Writing(job.run)
        return self._writing

    def finish(self) -> None:
        """Waits for the last write, and copies once more what the other place lacks; all processes must ask together.

        Raises:
            MachineError: as ``Writing.wait``; or the place still refuses, while all checkpoints are complete here.
        """
        self._settle()
        elsewhere = self._elsewhere
        if elsewhere is None or elsewhere.current:
            return
        kept = checkpoints_in(self.root)
        elsewhere.bring([path.name for path in kept], self._exchange)
        self.tell()
        if elsewhere.refusal is not None:
            raise elsewhere.refusal.at(
                elsewhere.refusal.where, what="all steps are made, and their checkpoints cannot be copied"
            ).with_fix(
                "mend the place, or leave the key out, and run the same command: "
                f"it ends at once, from {self.root.name}/{kept[-1].name}, which is complete"
            )

    def _index(self, state: State) -> Index:
        recent = state.progress.recent
        loss = mean_loss(recent) if recent else math.nan
        return Index(
            step=state.progress.step,
            ranks=self._world.ranks,
            layout=self._world.layout,
            loss=loss if math.isfinite(loss) else None,
            metrics={name: value for name, value in state.metrics.items() if math.isfinite(value)},
            writer=__version__,
            files={},
            model={},
            optimizer={},
        )

    def _settle(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.wait()
            self.longest_write_s = max(self.longest_write_s, writing.seconds)

    def _drop_others(self) -> list[Path]:
        """Deletes what the policy does not keep; returns the rest."""
        paths = {step_of(path): path for path in checkpoints_in(self.root)}
        kept = self._policy.kept(paths, measured(self.root, self._policy.metric) if self._policy.best else {})
        for step, path in paths.items():
            if step not in kept:
                drop(path)
        return [path for step, path in paths.items() if step in kept]

    def go_back(self, kept: Sequence[Path]) -> None:
        """Deletes all checkpoints but these, so that ``restore`` finds none later; all processes must do so together.

        Raises:
            MachineError: one could not be deleted, here or at the other place; all processes raise it.
        """
        self._settle()
        self._world.gathered(None)  # nobody writes or reads one any more
        failed: MachineError | None = None
        if self._world.leads:
            try:
                self._drop_all_but({path.name for path in kept})
            except MachineError as error:
                failed = error
            except OSError as error:
                failed = MachineError("cannot delete a checkpoint", where=self.root, seen=in_one_line(error))
        for told in self._world.gathered(failed):
            if told is not None:
                raise told

    def _drop_all_but(self, names: Collection[str]) -> None:
        """Deletes at the other place first: a later one that only lies there would be taken for a newer one."""
        if self._elsewhere is not None:
            self._elsewhere.keep(sorted(names))
        for path in checkpoints_in(self.root):
            if path.name not in names:
                drop(path)

    def wanted(self, metrics: Mapping[str, float]) -> bool:
        """Returns whether what was measured on the validation split now is among the best; all processes must ask.

        Raises:
            RecipeError: the metric that tells the best is not among them.
        """
        if not self._policy.best or not metrics:
            return False
        self._settle()
        # One process decides: a file system may show another one less.
        here = self._policy.wants(metrics, measured(self.root, self._policy.metric))
        first: bool = self._world.gathered(here)[0]
        return first

    def best(self) -> dict[str, Any] | None:
        """Returns the best of what is kept: step, metric, value and folder; None where the best are not kept."""
        if not self._policy.best:
            return None
        self._settle()
        values = measured(self.root, self._policy.metric)
        if not values:
            return None
        step = self._policy.ranking(values)[0]
        name = f"{self.root.name}/{folder_of(step)}"
        return {"step": step, "metric": self._policy.metric, "value": values[step], "checkpoint": name}

    def restore(self, model: Network, optimizers: Optimizers) -> TrainingProgress | None:
        """Load the newest undamaged checkpoint, or None where there is none; all processes must ask together.

        A damaged one is named in a message and passed over: it is never trained on.

        Raises:
            TrainingError: there are checkpoints, and all of them are damaged; or the newest is of another model.
            MachineError: nothing can be written to the other place, or nothing read from there.
        """
        if self._elsewhere is not None:
            self._elsewhere.probe(self._world.gathered)
        self._fetch()
        found: list[DataError] = []
        paths: list[Path] = self._exchange(self.paths())[0]  # which waits for what the first one copies
        for path in reversed(paths):
            error = load(f"{READING}:damage", kind="checkpoint")(path, self._world)
            if error is None:
                return load(f"{READING}:restored", kind="checkpoint")(path, model, optimizers, self._world)
            found.append(error)
            self._events.message(f"passing over a damaged checkpoint: {error.where}: {error.what}")
        if found:
            raise TrainingError(
                "every checkpoint of this run is damaged",
                where=found[0].where,
                seen=found[0].what,
                fix=f"delete {self.root.parent} to train from the start",
            )
        return None

    def _fetch(self) -> None:
        """Copies a newer checkpoint from elsewhere: another machine went on, or this one begins."""
        if self._elsewhere is None or not self._world.leads:
            return
        paths = self.paths()
        best = (self._policy.metric, self._policy.best_of) if self._policy.best else None
        for path in self._elsewhere.fetch(after=step_of(paths[-1]) if paths else -1, best=best):
            self._events.message(f"{path.name} comes from where checkpoints go")


def _write_small(folder: Path, *, network: Network, tokenizer: Path, progress: TrainingProgress) -> None:
    _write_shape(folder, network, tokenizer)
    write_atomically(folder / STATE, json.dumps(asdict(progress)).encode())


def whole_on_cpu(tensors: Iterable[tuple[str, Tensor]], world: World) -> dict[str, Tensor]:
    """Returns whole tensors by name where this process leads, nothing elsewhere; all processes must ask together."""
    whole = {}
    for name, tensor in world.whole(tensors):
        if world.leads:
            whole[name] = tensor.detach().cpu().contiguous()
    return whole


def write_bundle(directory: Path, network: Network, weights: Mapping[str, Tensor], tokenizer: Path) -> None:
    """``model.json``, ``model.safetensors`` and ``tokenizer.json``: enough to build the model and talk to it.

    With adapters ``adapters.json`` too, which says where their base is.
    """
    _write_shape(directory, network, tokenizer)
    save_weights(directory / WEIGHTS, weights)


def _write_shape(directory: Path, network: Network, tokenizer: Path) -> None:
    write_atomically(directory / SHAPE_FILE, json.dumps(to_json(network.spec), indent=1).encode() + b"\n")
    if network.adaptation is not None:
        record = json.dumps(to_json(network.adaptation), indent=1, sort_keys=True)
        write_atomically(directory / ADAPTERS, record.encode() + b"\n")
    if not network.spec.sees_images:
        shutil.copyfile(tokenizer, directory / TOKENIZER)
    for name in (CHAT_TEMPLATE, TOKENIZER_CONFIG, IMAGE_PROCESSOR, TARGET_SCALE):
        if (tokenizer.parent / name).is_file():
            shutil.copyfile(tokenizer.parent / name, directory / name)
