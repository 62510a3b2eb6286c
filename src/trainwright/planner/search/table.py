"""Layouts to be, column by column: each value of a new one beside each row, and what is struck out counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """A class of layouts that was left out: by which rule, why, and how many they were when the rule met them.

    ``ratios`` are the least and the most of memory needed over memory there, where that is the reason.
    """

    rule: str
    reason: str
    layouts: int
    ratios: tuple[float, float] | None = None


@dataclasses.dataclass(slots=True)
class Table:
    """Rows of layouts to be, by column, and what was struck out; of a column in ``fixed`` only that value is kept."""

    columns: dict[str, Numbers]
    wasteful: bool = False
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    pruned: list[Pruned] = dataclasses.field(default_factory=list)

    def __getitem__(self, name: str) -> Numbers:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def cross(self, name: str, values: Iterable[float]) -> None:
        """Repeats each row with each value of a new column."""
        column = np.asarray([each for each in values if self.fixed.get(name, each) == each], dtype=np.float64)
        rows = len(self)
        if len(column) != 1:
            self.columns = {key: np.repeat(kept, len(column)) for key, kept in self.columns.items()}
        self.columns[name] = np.broadcast_to(column, (rows, len(column))).ravel()

    def shape(self, name: str, values: Numbers) -> None:
        """Adds a column that follows from the others."""
        self.columns[name] = values
        if name in self.fixed:
            self.keep(self[name] == self.fixed[name])

    def prefer(self, mask: Mask, rule: str, reason: str | Callable[[Mask], str]) -> None:
        """Strikes out the other rows unless wasteful ones are wanted."""
        if not self.wasteful:
            self.keep(mask, rule, reason)

    def keep(self, mask: Mask, rule: str = "", reason: str | Callable[[Mask], str] = "") -> None:
        """Strikes out the other rows; without a rule they were never layouts, and are not counted."""
        struck = int(len(mask) - mask.sum())
        if struck and rule:
            text = reason if isinstance(reason, str) else reason(~mask)
            self.pruned.append(Pruned(rule=rule, reason=text, layouts=struck))
        if struck:
            kept = np.flatnonzero(mask)
            self.columns = {key: values.take(kept) for key, values in self.columns.items()}
