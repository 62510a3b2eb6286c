"""What comparisons of one run on many devices have in common: layouts, and what each of them needs of memory.

What states alone keep from fitting anywhere is struck out before its peak is counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.forecast.communication.collectives import Fabric
from trainwright.planner.forecast.memory.table import MemoryTable, stuck_share, usable_bytes
from trainwright.planner.forecast.networks import counted
from trainwright.planner.search.candidates import Candidates
from trainwright.spec.run import RunSpec

ROUNDING = 1e-9
"""By which a sum of bytes may be above the same one in another order."""
FEW = 3
"""Kinds of devices that lie between others of one kind where a search sorts them: by precision, and by bridges."""

Key = tuple[object, ...]
Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Needed:
    """What the ``states`` [C] of all candidates need; those ``left`` [L], at ``places``, with their ``memory``."""

    states: Numbers
    places: NDArray[np.intp]
    left: Candidates
    memory: MemoryTable


@dataclasses.dataclass(slots=True)
class Memo:
    """The latest of what comparisons of one model, workload, stack and layout on many devices have in common.

    ``rooms`` are the usable bytes of the largest device of those that are ``alike``: what needs more for its states
    alone fits on none of them, and is not left. Without a room all are.
    """

    rooms: Mapping[Key, float] = field(default_factory=dict)
    listed: dict[Key, Candidates] = field(default_factory=dict)
    counted: dict[Key, Needed] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[RunSpec]) -> Self:
        """Returns the memo of a run on each of several clusters."""
        rooms: dict[Key, float] = {}
        for run in runs:
            rooms[alike(run)] = max(usable_bytes(run.cluster.device), rooms.get(alike(run), 0.0))
        return cls(rooms)

    def needed(self, run: RunSpec, shape: Key, listed: Callable[[], Candidates], source: RateSource) -> Needed:
        """Returns what layouts of such ``shape`` need, which ``listed`` lists.

        Raises as ``Fabric.of``.
        """
        # What layouts there are follows from these alone, what each needs from a little more.
        shape = (float(Fabric.of(run.cluster).domain), run.cluster.node.devices, *shape)
        size = (*alike(run), run.workload.precision, run.workload.activation_offload)

        def count() -> Needed:
            every = _latest(self.listed, shape, listed)
            states = counted(run.model).states_bytes(run, every.layouts)
            places = within(every, states, run, self.rooms.get(alike(run), np.inf))
            left = every if len(places) == len(states) else replace(every, layouts=every.layouts.take(places))
            memory = counted(run.model).memory(run, left.layouts, source.process(run))
            return Needed(states=states, places=places, left=left, memory=memory)

        return _latest(self.counted, (shape, size), count)


def alike(run: RunSpec) -> Key:
    """Returns what devices have in common on which a layout needs about the same: their node, and libraries' bytes."""
    return run.cluster.node.devices, counted(run.model).library_bytes(run)


def within(every: Candidates, states: Numbers, run: RunSpec, room: float) -> NDArray[np.intp]:
    """Returns the places of candidates whose ``states`` may have room, each with all its recomputations.

    A measured process gives all its unused memory back, so that what fragmentation takes is allowed for.
    """
    able = states <= room * (1 + stuck_share(run.stack.memory)) * (1 + ROUNDING)
    return np.flatnonzero(np.repeat(able.reshape(-1, every.recomputes).any(axis=1), every.recomputes))


def _latest(kept: dict[Key, Kept], key: Key, make: Callable[[], Kept]) -> Kept:
    """Returns what is kept of ``key``, else what ``make`` returns; the ``FEW`` that were asked for last are kept."""
    kept[key] = kept.pop(key) if key in kept else make()
    while len(kept) > FEW:
        del kept[next(iter(kept))]
    return kept[key]
