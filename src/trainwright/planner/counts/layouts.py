"""Many layouts at once: every quantity an array, so that one formula serves ``plan`` and the search alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.spec.run import PlacedRun
from trainwright.spec.workload import ContextWay, Offload, ParallelPlan, Recompute, Schedule, Workload, ZeroStage

Numbers = NDArray[np.float64]
Values = float | Numbers
"""A number, or an array that broadcasts with the others."""
if TYPE_CHECKING:
    from _typeshed import DataclassInstance
Table = TypeVar("Table", bound="DataclassInstance")
Key = TypeVar("Key", bound=str)

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe")
OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "all", "optimizer-nvme", "all-nvme", "frozen")
CONTEXTS: tuple[ContextWay, ...] = ("gather", "ulysses")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": SCHEDULES,
    "offload": OFFLOADS,
    "recompute": RECOMPUTES,
    "context": CONTEXTS,
}
"""What a layout chooses by name."""
ROUNDING = 1e-9
"""What a number of micro batches may be above a whole one by rounding."""
ZERO_STAGES: tuple[ZeroStage, ...] = (0, 1, 2, 3)
MANY = 256
"""Layouts from which on it is faster to look for equal ones than to count each."""
FEW_VALUES = 40
"""Of which a column's numbers can be its codes as they are."""
MOST_CODES = 1 << 16
"""Entries of a table of codes: half a megabyte, so that a processor's cache holds it."""


class FixedLayout(TypedDict, total=False):
    """What is fixed of the parallel layout, by name; the rest is chosen."""

    dp_replicate: int
    dp_shard: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro_batch: int
    zero_stage: ZeroStage
    virtual_stages: int
    schedule: Schedule
    offload: Offload
    recompute: Recompute
    recompute_shards: bool
    """Layers are recomputed where ranks share weights, and nowhere else: some software does so by itself."""
    usual_zero_stage: ZeroStage
    """All data-parallel ranks share at this stage: some software does so by itself."""
    usual_micro_batch: int
    """The micro batch wherever it divides what a rank has of a batch: some software has one by default."""
    sequence_parallel: bool
    context: ContextWay
    compile: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layouts:
    """Arrays of shape [L], one entry for each of L layouts.

    Choices are kept as their place in ``SCHEDULES``, ``OFFLOADS``, ``RECOMPUTES`` and ``CONTEXTS``. ``unevenness`` is
    the largest part of a batch that a data-parallel place has, over an equal one.
    """

    dp_replicate: Numbers
    dp_shard: Numbers
    tp: Numbers
    pp: Numbers
    cp: Numbers
    ep: Numbers
    micro_batch: Numbers
    zero_stage: Numbers
    sequence_parallel: Numbers
    schedule: Numbers
    virtual_stages: Numbers
    offload: Numbers
    compile: Numbers
    recompute: Numbers
    batch_sequences: Numbers
    context: Numbers
    unevenness: Numbers

    @classmethod
    def of(cls, plans: Sequence[ParallelPlan], recomputes: Sequence[Recompute], workload: Workload) -> Self:
        """Returns the layouts of ``plans``, each with its own recomputation."""
        rows = [
            (
                *(plan.dp_replicate, plan.dp_shard, plan.tp, plan.pp, plan.cp, plan.ep, plan.micro_batch_sequences),
                *(plan.zero_stage, plan.sequence_parallel, SCHEDULES.index(plan.schedule), plan.virtual_stages),
                *(OFFLOADS.index(plan.offload), plan.compile, RECOMPUTES.index(recompute), workload.batch_sequences),
                *(CONTEXTS.index(plan.context), plan.unevenness),
            )
            for plan, recompute in zip(plans, recomputes, strict=True)
        ]
        columns = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(fields(cls))).T
        return cls(**{field.name: column for field, column in zip(fields(cls), columns, strict=True)})

    @classmethod
    def one(cls, placed: PlacedRun) -> Self:
        """Returns one layout as arrays of length one, with its workload's recomputation."""
        return cls.of([placed.parallel], [placed.run.workload.recompute], placed.run.workload)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Returns the layouts of all parts, one behind the other."""
        return cls(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def data_parallel(self) -> Numbers:
        """Returns the number of ranks that see different sequences."""
        return self.dp_replicate * self.dp_shard

    @property
    def sharing(self) -> Numbers:
        """Returns the number of ranks that can share weights and states, ``zero_stage`` of them."""
        return self.dp_shard * self.cp

    @property
    def shares_states(self) -> NDArray[np.bool_]:
        """Returns True where ranks share weights or states, in place of copies."""
        return (self.sharing > 1) & (self.zero_stage > 0)

    @property
    def devices(self) -> Numbers:
        """Returns the number of devices of the whole layout."""
        return self.data_parallel * self.tp * self.pp * self.cp

    @property
    def micro_batches(self) -> Numbers:
        """Returns the number of micro batches of one step on the data-parallel rank that has most."""
        each = self.batch_sequences * self.unevenness / (self.micro_batch * self.data_parallel)
        return np.maximum(1.0, np.ceil(each - ROUNDING))

    def has(self, name: str, choice: str) -> NDArray[np.bool_]:
        """Returns True [L] where the choice of this name (a key of ``CHOICES``) is ``choice``."""
        places: NDArray[np.bool_] = getattr(self, name) == CHOICES[name].index(choice)
        return places

    @property
    def offloads_all(self) -> NDArray[np.bool_]:
        """Returns True [L] where weights and gradients leave the device too, wherever to."""
        return self.has("offload", "all") | self.has("offload", "all-nvme")

    @property
    def offloads_weights(self) -> NDArray[np.bool_]:
        """Returns True [L] where weights, all or frozen ones, are fetched for each pass."""
        return self.offloads_all | self.has("offload", "frozen")

    @property
    def offloads_to_nvme(self) -> NDArray[np.bool_]:
        """Returns True [L] where what is offloaded lives on NVMe drives, not in host memory."""
        return self.has("offload", "optimizer-nvme") | self.has("offload", "all-nvme")

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> Layouts:
        """Returns the layouts at ``places``."""
        return taken(self, places)


def taken(table: Table, places: NDArray[np.intp] | NDArray[np.bool_]) -> Table:
    """Returns a dataclass of arrays [L] with the entries at ``places``; what is no array is one for all layouts."""
    at = np.flatnonzero(places) if places.dtype == np.bool_ else places
    values = ((field.name, getattr(table, field.name)) for field in fields(table))
    return replace(
        table, **{name: value.take(at) for name, value in values if isinstance(value, np.ndarray) and value.ndim}
    )


def counted_once(
    layouts: Layouts, columns: Sequence[NDArray[Any]], count: Callable[[Layouts], Mapping[Key, Values]]
) -> dict[Key, Values]:
    """Returns what ``count`` says of each layout [L]; it is asked once for all that have the same ``columns`` [L].

    Thousands of layouts that a search compares have some hundred ways to divide a matrix. What ``count`` says must
    follow from the columns, whole numbers from 0 on, alone.
    """
    return Alike.of(layouts, columns).counted(count)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Alike:
    """Layouts [L] that have some columns alike: of each such kind one, and at which ``place`` its like is [L]."""

    one_each: Layouts
    place: NDArray[np.intp] | None
    """None: each stands for itself."""

    @classmethod
    def of(cls, layouts: Layouts, columns: Sequence[NDArray[Any]]) -> Self:
        """Returns the kinds of layouts by their columns [L], whole numbers from 0 on."""
        if len(layouts) < MANY:
            return cls(one_each=layouts, place=None)
        places, back = _distinct(columns)
        return cls(one_each=layouts.take(places), place=back)

    def counted(self, count: Callable[[Layouts], Mapping[Key, Values]]) -> dict[Key, Values]:
        """Returns what ``count`` says of each layout [L]: it is asked for one of each kind."""
        once, place = count(self.one_each), self.place
        if place is None:
            return dict(once)
        return {
            name: each.take(place) if isinstance(each, np.ndarray) and each.ndim else each
            for name, each in once.items()
        }


def kinds_of(columns: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Returns the kind [L] of each row of the columns, whole numbers from 0 on: one column in place of several."""
    return _distinct(columns)[1]


def _distinct(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns a place of each distinct row of the columns, and for each row which of these is its like.

    Without sorting, which takes longer than all the counts of some layouts: a row's code is its place in a table.
    """
    codes, size = np.zeros(len(columns[0]), dtype=np.intp), 1
    for column in columns:
        if (column == column[0]).all():
            continue
        values, kinds = column.astype(np.intp), int(column.max()) + 1
        if kinds > FEW_VALUES:
            values, kinds = _coded(values)
        if size * kinds > MOST_CODES:
            codes, size = _coded(codes)
        codes *= kinds
        codes += values
        size *= kinds
    back, kinds = _coded(codes)
    places = np.empty(kinds, dtype=np.intp)
    places[back] = np.arange(len(back))
    return places, back


def _coded(values: NDArray[np.intp]) -> tuple[NDArray[np.intp], int]:
    """Returns the rank of each value among all that there are, and how many these are."""
    there = np.bincount(values) > 0
    return (np.cumsum(there) - 1)[values], int(there.sum())
