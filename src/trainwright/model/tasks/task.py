"""``Task``: all that training and evaluation know about what is learnt.

A task turns a dataset into batches, a batch into a loss with its weight, and a split into metrics. The trainer divides
the sum of the losses by the sum of the weights, so that micro batches of any size give one gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.plug_in import blaming, not_an_instance
from trainwright.core.records import to_json
from trainwright.core.registry import load
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe

Batch = Mapping[str, Tensor]
"""Tensors by name; the first dim of each is the sequences of the batch, along which micro batches are cut."""

Progress = Callable[[int, int], None]
"""Is told how many units of how many are measured."""


@runtime_checkable
class Batches(Protocol):
    """The batches of a run; each is a function of its step alone, so that the step is the whole state."""

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns the batch of a step, counted from 0, on the CPU; of its sequences those in ``rows``, None: all."""


def batch_of(batches: Batches, step: int, rows: range | None) -> Batch:
    """Returns the batch of a step, or these rows of it; whole ones a plug-in's ``batch`` may give without rows."""
    return batches.batch(step) if rows is None else batches.batch(step, rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A measured number."""

    value: float
    unit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What a task measured on a split.

    Attributes:
        count: how many units the loss is averaged over.
        metrics: headline numbers by name, ``loss`` first.
        record: their circumstances as JSON values; no metric a second time.
        details: tables that explain them, as JSON values; empty where they were not asked for. Shown are lists of
            objects (a row each), ``{"labels": [...], "counts": [[...]]}`` (a square), and ``{"title", "x", "y",
            "x_title", "y_title", "rows"}`` (a curve of two columns of its rows, without those that lack a number; over
            a logarithmic axis where all x are above zero; with ``"diagonal": True`` drawn as points beside the line
            on which x and y are equal); other values stay in the file.
    """

    count: int
    metrics: Mapping[str, Metric]
    record: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self, *, unit: str) -> dict[str, Any]:
        """Returns JSON values: the names that a task chose are below ours, never beside them.

        A number that is none (NaN, infinite) is None. ``unit`` is what ``count`` counts.
        """
        values = {name: metric.value if isfinite(metric.value) else None for name, metric in self.metrics.items()}
        return {
            "metrics": {name: {"value": values[name], "unit": metric.unit} for name, metric in self.metrics.items()},
            "unit": unit,
            "count": self.count,
            "record": to_json(dict(self.record)),
            "details": to_json(dict(self.details)),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The passes of a measurement that this process makes: every one of ``places``, from its own on.

    ``total`` adds up tensors of the network's device over all places.
    """

    place: int
    places: int
    total: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationOptions:
    """How a split is measured.

    Attributes:
        batch_sequences: sequences of a forward pass; changes the result by rounding only.
        tokens: about how many of the split's tokens, in whole documents; None takes all.
        detailed: make the tables of ``Evaluation.details`` too.
        progress: is told how far the measurement is.
        share: of several processes that may divide the work; None: this one alone, or each makes all.
    """

    batch_sequences: int
    tokens: int | None = None
    detailed: bool = False
    progress: Progress | None = None
    share: Share | None = None


@runtime_checkable
class Task(Protocol):
    """One thing that a network can learn from a dataset."""

    @property
    def unit(self) -> str:
        """Returns what one unit of weight is: ``token``, ``document``."""

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns what a user should know of these splits before they are learnt, a line each; mostly nothing."""

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> Batches:
        """Returns the batches of a split in an order that the seed decides.

        Raises:
            DataError: the split is too short for one batch.
        """

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns how many units of a batch count, before anything is computed."""

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns what ``hidden`` and ``loss`` need of a micro batch that is already on the network's device."""

    def hidden(self, network: Network, inputs: Batch) -> Tensor:
        """Returns what the network makes of a micro batch; all of its parameters but the head's take part."""

    def loss(self, network: Network, hidden: Tensor, inputs: Batch) -> Loss:
        """Returns the summed loss in nats and its weight; over all micro batches the weights sum to ``weight``."""

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure the network on a split.

        Args:
            network: on its device.
            split: what to measure on.
            options: how much of it, and how.

        Raises:
            DataError: the split is too short to measure.
        """


class DividesSequences(Task, Protocol):
    """A task whose sequences may lie on several ranks (``cp``), each with some tokens of every one."""

    def part(self, inputs: Batch, places: Int[Tensor, " part"]) -> Batch:
        """Returns of a micro batch's ``inputs`` those of these tokens of every sequence, with ``places`` among them.

        ``hidden`` passes ``places`` on to the network; over all parts the losses and their weights are those of
        ``inputs``.
        """


@runtime_checkable
class TellsParts(Task, Protocol):
    """A task whose loss is a sum of parts, which training reports apart."""

    def told(self) -> Mapping[str, Tensor]:
        """Returns by metric what the losses since it was last asked are made of, each summed in nats; forgets it."""


@runtime_checkable
class HasTeacher(Task, Protocol):
    """A task whose loss needs another network, which is loaded for training alone."""

    def taught_by(self, teacher: Network) -> Task:
        """Returns the task with that network, which is frozen, on the device of the one that learns."""


References = Mapping[str, NDArray[np.float32]]
"""By split, of each token the logarithm of its probability for the first network; 0 where nobody asks for it."""
Part = tuple[NDArray[np.int64], NDArray[np.float32], int, int]
"""Places in a split, what belongs there, and how many of how many sequences are behind."""


@runtime_checkable
class RefersToStart(Task, Protocol):
    """A task that compares a network with the one that training begins with, which is asked once, before it changes."""

    @property
    def refers(self) -> bool:
        """Returns whether it does so as the recipe has it."""

    def referring(self, references: References) -> Task:
        """Returns the task with what the first network says of these splits."""

    def reference_parts(
        self, network: Network, split: TokenSplit, *, batch_sequences: int, rows: Callable[[int], range | None]
    ) -> Iterator[Part]:
        """Yields what the network says of a split, of which ``rows`` of each pass are computed here; None: all.

        Every rank makes as many passes.
        """


def refers(task: Task) -> TypeGuard[RefersToStart]:
    """Returns whether a task compares a network with the one that training began with."""
    return isinstance(task, RefersToStart) and task.refers


def without_reference(task: Task, splits: Mapping[str, TokenSplit]) -> Task:
    """Returns a task whose reference says nothing, for steps of which shapes and time count, and not values."""
    if not refers(task):
        return task
    return task.referring({name: np.zeros(split.tokens, np.float32) for name, split in splits.items()})


def load_task(recipe: Recipe, dataset: TokenDataset) -> Task:
    """Returns the task that a recipe names, for a dataset.

    Raises:
        RecipeError: the task is unknown, cannot be imported, or is a plug-in that fails.
        DataError: the dataset is not of the kind that the task needs.
    """
    name = recipe.task.name
    make = load(recipe.task.kind.make, kind="task")
    with blaming(name, where="task.name"):
        task = make(recipe, dataset)
        if not isinstance(task, Task):
            raise not_an_instance(task, Task)
    return task
