"""The fit of ``fit_time.py``: rows as arrays, rates as products of numbers, and the numbers that explain the rows best.

``OPENBLAS_NUM_THREADS=1`` makes it several times faster on a busy machine: its matrices are small.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from priors import MATMUL, PRIORS, WIDTHS
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.efficiency import generation
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.ranks import processors_left
from trainwright.planner.counts.work import Work
from trainwright.planner.evidence.published_run import Row
from trainwright.planner.forecast.communication.exchange import Exchange, exchange
from trainwright.planner.forecast.time.step import combine
from trainwright.planner.rates.catalogue import CATALOGUE, Factor, Rates, bounded, exposure_of, factors, reached

Mask = NDArray[np.bool_]
Table = TypeVar("Table", Work, Exchange, Layouts)

NOISE = 0.1
"""Log error beyond which a row counts linearly: what shapes and settings that rows do not print are worth."""
SOURCE_ROWS = 40
"""A source with more rows than this counts as much as one with so many."""
STEP = 1e-6
"""Of a rate's logarithm, for its slope."""
TOLD = 0.025
"""A number whose logarithm the rows move by less stays its prior, and the others are fitted once more."""
DERIVED_WEIGHT = 0.3
"""Weight of rows whose tokens per second follow from a printed step time."""


@dataclass(frozen=True, eq=False)
class Data:
    """R rows as arrays [R]; ``names`` are, for each row and field of ``Rates``, the numbers whose product it is.

    ``fixed`` [R, F] is the logarithm of what each field is multiplied by beside them, which is measured.
    """

    rows: list[Row]
    work: Work
    sent: Exchange
    shape: Layouts
    left: Numbers
    log_step_s: Numbers
    weight: Numbers
    names: list[list[tuple[str, ...]]]
    fixed: Numbers

    @property
    def printed(self) -> Mask:
        """Rows whose source prints tokens per second."""
        return np.array([not row.measured.derived for row in self.rows], dtype=bool)

    def take(self, mask: Mask) -> Data:
        """The rows of ``mask``."""
        places = np.flatnonzero(mask)
        return Data(
            rows=[self.rows[place] for place in places],
            work=_taken(self.work, mask),
            sent=_taken(self.sent, mask),
            shape=_taken(self.shape, mask),
            left=self.left[mask],
            log_step_s=self.log_step_s[mask],
            weight=self.weight[mask],
            names=[self.names[place] for place in places],
            fixed=self.fixed[mask],
        )


def _taken(table: Table, mask: Mask) -> Table:
    return type(table)(**{field.name: getattr(table, field.name)[mask] for field in fields(table)})


def _joined(parts: Sequence[Table]) -> Table:
    """Many tables of one entry each as one table."""
    kind = type(parts[0])
    columns: dict[str, Any] = {
        field.name: np.concatenate([np.broadcast_to(np.asarray(getattr(part, field.name), float), 1) for part in parts])
        for field in fields(kind)
    }
    return kind(**columns)


def generation_of(row: Row) -> str:
    """The generation of a row's devices."""
    return generation(row.placed.run.cluster.device)


def numbers_of(row: Row, name: str) -> tuple[str, ...]:
    """The numbers that one of a row's is the product of: a stack's stands by its name, with that of one it follows."""
    if not name.startswith("stack."):
        return (name,)
    return tuple(f"stack:{stack}.{name.removeprefix('stack.')}" for stack in lineage(row.placed.run.stack.time_of))


def lineage(stack: str) -> list[str]:
    """A stack, and those of the releases before it.

    Raises:
        RecipeError: they lead back to one of themselves.
    """
    found = [stack]
    while earlier := read_stack(found[-1]).follows:
        if earlier in found:
            seen = " after ".join((*found, earlier))
            raise RecipeError("a release is its own successor", field="follows", seen=seen, expected="a first release")
        found.append(earlier)
    return found


def rate_factors(row: Row) -> list[tuple[Factor, ...]]:
    """The factors of each field of a row's rates, with the measured shares that the fit starts from."""
    shares = {name: share for name, (share, _) in MATMUL.items()}
    parts = factors(row.timed.run, replace(CATALOGUE.efficiency, matmul=shares))
    return [parts[each.name] for each in fields(Rates)]


def gather(rows: list[Row]) -> Data:
    """Everything about the rows that does not depend on what is fitted."""
    works: list[Work] = []
    sents: list[Exchange] = []
    shapes: list[Layouts] = []
    left: list[Numbers] = []
    kept: list[Row] = []
    steps: list[float] = []
    names: list[list[tuple[str, ...]]] = []
    fixed: list[list[float]] = []
    for row in rows:
        run, shape = row.timed.run, Layouts.one(row.timed)
        if not row.measured.tokens_per_s:
            continue
        try:
            works.append(CATALOGUE.work(run, shape))
        except RecipeError:  # the datasheet has no rate for the row's precision
            continue
        sents.append(exchange(run, shape))
        shapes.append(shape)
        left.append(processors_left(run, shape))
        kept.append(row)
        steps.append(np.log(run.workload.step_tokens / shape.devices[0] / row.measured.tokens_per_s))
        parts = rate_factors(row)
        names.append(
            [tuple(each for part in some if not part.fixed for each in numbers_of(row, part.name)) for some in parts]
        )
        fixed.append([sum(math.log(part.value) for part in some if part.fixed) for some in parts])
    counts = Counter(row.source for row in kept)
    weight = [
        (DERIVED_WEIGHT if row.measured.derived else 1.0) / max(1.0, counts[row.source] / SOURCE_ROWS) ** 0.5
        for row in kept
    ]
    return Data(
        rows=kept,
        work=_joined(works),
        sent=_joined(sents),
        shape=_joined(shapes),
        left=np.concatenate(left),
        log_step_s=np.array(steps),
        weight=np.array(weight),
        names=names,
        fixed=np.array(fixed),
    )


def prior(name: str) -> tuple[float, float]:
    """Mean and width of the logarithm."""
    if name in PRIORS:
        return float(np.log(PRIORS[name][0])), PRIORS[name][1]
    table = name.partition(".")[0]
    if name.startswith("stack:"):
        return 0.0, WIDTHS["stack.tuned" if ".tuned." in name else "stack." + name.rpartition(".")[2]]
    if table in WIDTHS:
        return 0.0, WIDTHS[table]
    mean, width, _ = PRIORS[f"{table}.default"]
    return float(np.log(mean)), width


class Model:
    """Logarithms of the rows' seconds as a function of those of N numbers; others keep their priors."""

    def __init__(self, data: Data, names: Sequence[str]) -> None:
        others = sorted(_numbers(data) - set(names))
        self.data, self.count = data, len(names)
        self.known = np.array([prior(name)[0] for name in others])
        self.places = _places(data, {name: place for place, name in enumerate((*names, *others))})
        rows = np.arange(len(data.rows))[:, None]
        self.times = np.zeros((len(fields(Rates)), len(data.rows), self.count + len(others) + 1))
        """How often each number is a factor of each rate of each row."""
        for times, place in zip(self.times, self.places.values(), strict=True):
            np.add.at(times, (rows, place), 1.0)

    def log_step_s(self, values: Numbers) -> Numbers:
        """Logarithms [R] of the rows' seconds."""
        return self._of(self._rates(values))

    def slopes(self, values: Numbers) -> Numbers:
        """Derivatives [R, N] of ``log_step_s``: one difference for each rate, whose logarithm is a sum of numbers."""
        rates, found = self._rates(values), np.zeros((len(self.data.rows), self.count))
        middle = self._of(rates)
        for name, times in zip(self.places, self.times, strict=True):
            moved = self._of(rates | {name: rates[name] * np.exp(STEP)})
            found += ((moved - middle) / STEP)[:, None] * times[:, : self.count]
        return found

    def _rates(self, values: Numbers) -> dict[str, Numbers]:
        table = np.concatenate([values, self.known, [0.0]])
        sums = zip(self.places.items(), self.data.fixed.T, strict=True)
        return {name: np.exp(table[place].sum(axis=1) + fixed) for (name, place), fixed in sums}

    def _of(self, rates: Mapping[str, Numbers]) -> Numbers:
        rate, data = Rates(**bounded(rates)), self.data
        kernels = reached(data.work, rate, left=data.left)
        return np.log(combine(kernels, data.sent, data.shape, exposure_of(rate)).total_s)


class Fit:
    """Logarithms of all numbers that occur in some rows; first their priors, after ``run`` what the rows say."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.names = sorted(_numbers(data))
        self.prior = np.array([prior(name) for name in self.names]).reshape(-1, 2)
        self.values = self.prior[:, 0].copy()

    def run(self) -> Fit:
        """Find the values."""
        model, (mean, width) = Model(self.data, self.names), self.prior.T

        def misses(values: Numbers) -> Numbers:
            return (model.log_step_s(values) - self.data.log_step_s) / NOISE

        def residuals(values: Numbers) -> Numbers:
            return np.concatenate([_huber(misses(values)) * self.data.weight, (values - mean) / width])

        def slopes(values: Numbers) -> Numbers:
            miss = misses(values)
            each = _huber_slope(miss) * self.data.weight / NOISE
            return np.vstack([each[:, None] * model.slopes(values), np.diag(1 / width)])

        first = least_squares(residuals, self.values, slopes, max_nfev=40).x
        told = np.abs(first - self.values) >= TOLD

        def with_told(values: Numbers) -> Numbers:
            every = mean.copy()
            every[told] = values
            return every

        second = least_squares(
            lambda each: residuals(with_told(each)),
            first[told],
            lambda each: slopes(with_told(each))[:, told],
            max_nfev=20,
        )
        self.values = with_told(second.x)
        return self

    @property
    def told(self) -> int:
        """How many numbers the rows tell: those that are not their prior."""
        return int(np.sum(self.values != self.prior[:, 0]))

    def errors(self, data: Data) -> Numbers:
        """log(predicted / measured) seconds of each row."""
        return Model(data, self.names).log_step_s(self.values) - data.log_step_s


def _huber(misses: Numbers) -> Numbers:
    """What is squared for the pseudo-Huber loss."""
    return np.asarray(np.sign(misses) * np.sqrt(2 * (np.sqrt(1 + misses**2) - 1)))


def _huber_slope(misses: Numbers) -> Numbers:
    root = np.sqrt(1 + misses**2)
    return np.asarray(np.sqrt((root + 1) / 2) / root)


def _numbers(data: Data) -> set[str]:
    """Names of all numbers that the rows' rates are products of."""
    return {name for row in data.names for factors in row for name in factors}


def _places(data: Data, index: Mapping[str, int]) -> dict[str, NDArray[np.intp]]:
    """For each field of ``Rates`` where its factors stand [R, K]; rows of fewer than K point behind all, at 1."""
    found = {}
    for place, field in enumerate(fields(Rates)):
        depth = max(len(row[place]) for row in data.names)
        rows = [[index[name] for name in row[place]] + [len(index)] * (depth - len(row[place])) for row in data.names]
        found[field.name] = np.array(rows, dtype=np.intp).reshape(len(rows), depth)
    return found
