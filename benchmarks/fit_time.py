"""Fits the planner's efficiency numbers to published throughput, and says how well they hold elsewhere.

    python benchmarks/fit_time.py runs.csv [more.csv] # errors on the rows, and with each source left out
    python benchmarks/fit_time.py runs.csv --write    # the same, and writes catalog/{efficiency,stacks/*}.toml

Every number has a prior (a datasheet, a measurement of matrix products alone, or 1 for what only says how one stack
differs from others) with a width; the fit minimises the pseudo-Huber loss of log(predicted / measured) step time plus
the squared distance from the priors. Needs scipy (``pip install -e .[dev]``).
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import trainwright
from doubts import PRIOR_ROWS, covered, doubts, figures, is_plain, kind_of_work, left_out_spreads, spread, summary
from priors import PRIORS, WIDTHS
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.efficiency import generation
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.ranks import processors_left
from trainwright.planner.counts.work import Work
from trainwright.planner.evidence.published_run import Row, questions
from trainwright.planner.evidence.rows import read_tables
from trainwright.planner.forecast.communication.exchange import Exchange, exchange
from trainwright.planner.forecast.time.step import combine
from trainwright.planner.rates.catalogue import CATALOGUE, Rates, exposure_of, factors, reached

Mask = NDArray[np.bool_]
Table = TypeVar("Table", Work, Exchange, Layouts)

CATALOG = Path(trainwright.__file__).parent / "catalog"
FOLDS = 5
NOISE = 0.08
"""Log error beyond which a row counts linearly: what shapes and settings that rows do not print are worth."""
SOURCE_ROWS = 40
"""A source with more rows than this counts as much as one with so many."""
TOLD = 0.02
"""A number whose logarithm the rows move by less stays its prior, and the others are fitted once more."""
DERIVED_WEIGHT = 0.3
"""Weight of rows whose tokens per second follow from a step time of tiny models in continuous integration."""


@dataclass(frozen=True, eq=False)
class Data:
    """R rows as arrays [R]; ``names`` are, for each row and field of ``Rates``, the numbers whose product it is."""

    rows: list[Row]
    work: Work
    sent: Exchange
    shape: Layouts
    left: Numbers
    log_step_s: Numbers
    weight: Numbers
    names: list[list[tuple[str, ...]]]

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


def stack_of(row: Row, name: str) -> str:
    """A stack's number, by its stack."""
    return f"stack:{row.placed.run.stack.time_of}.{name.removeprefix('stack.')}" if name.startswith("stack.") else name


def gather(rows: list[Row]) -> Data:
    """Everything about the rows that does not depend on what is fitted."""
    works: list[Work] = []
    sents: list[Exchange] = []
    shapes: list[Layouts] = []
    left: list[Numbers] = []
    kept: list[Row] = []
    steps: list[float] = []
    names: list[list[tuple[str, ...]]] = []
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
        parts = factors(run, CATALOGUE.efficiency)
        names.append([tuple(stack_of(row, part.name) for part in parts[field.name]) for field in fields(Rates)])
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


class Fit:
    """Logarithms of all numbers that occur in some rows; first their priors, after ``run`` what the rows say."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.names = sorted(_numbers(data))
        self.prior = np.array([prior(name) for name in self.names]).reshape(-1, 2)
        self.values = self.prior[:, 0].copy()

    def run(self) -> Fit:
        """Find the values."""
        predict = self._model(self.data)

        def residuals(values: Numbers) -> Numbers:
            error = (predict(values) - self.data.log_step_s) / NOISE
            huber = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
            return np.concatenate([huber * self.data.weight, (values - self.prior[:, 0]) / self.prior[:, 1]])

        first = least_squares(residuals, self.values, max_nfev=40).x
        told = np.abs(first - self.values) >= TOLD

        def with_told(values: Numbers) -> Numbers:
            every = self.prior[:, 0].copy()
            every[told] = values
            return every

        self.values = with_told(least_squares(lambda each: residuals(with_told(each)), first[told], max_nfev=20).x)
        return self

    @property
    def told(self) -> int:
        """How many numbers the rows tell: those that are not their prior."""
        return int(np.sum(self.values != self.prior[:, 0]))

    def errors(self, data: Data) -> Numbers:
        """log(predicted / measured) seconds of each row."""
        return self._model(data)(self.values) - data.log_step_s

    def _model(self, data: Data) -> Callable[[Numbers], Numbers]:
        """Logarithms of the rows' seconds as a function of the values; numbers not fitted keep their priors."""
        others = sorted(_numbers(data) - set(self.names))
        known = np.array([prior(name)[0] for name in others])
        index = {name: place for place, name in enumerate((*self.names, *others))}
        places = _places(data, index)

        def log_step_s(values: Numbers) -> Numbers:
            table = np.concatenate([values, known, [0.0]])
            rate = Rates(**{name: np.exp(table[place].sum(axis=1)) for name, place in places.items()})
            kernels = reached(data.work, rate, left=data.left)
            return np.log(combine(kernels, data.sent, data.shape, exposure_of(rate)).total_s)

        return log_step_s


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


def show(title: str, data: Data, errors: Numbers) -> None:
    """The summary of printed rows, and of each source."""
    printed = data.printed
    print(f"{title:44} {summary(errors[printed])}")
    dense = printed & [is_plain(row) for row in data.rows]
    print(f"{'  dense decoders, 16 bit, all weights':44} {summary(errors[dense])}")
    for source in sorted({row.source for row in data.rows}):
        own = np.array([row.source == source for row in data.rows])
        for kind, mask in (("", own & printed), (" (derived)", own & ~printed)):
            if mask.any():
                print(f"  {source[:30] + kind:42} {summary(errors[mask])}")


def held_out(data: Data, groups: NDArray[np.generic]) -> Numbers:
    """Errors of each group's rows with numbers fitted without any of them; ``groups`` [R] names each row's."""
    errors = np.zeros(len(data.rows))
    for group in sorted(set(groups.tolist())):
        mask = groups == group
        errors[mask] = Fit(data.take(~mask)).run().errors(data.take(mask))
    return errors


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fit with the errors [R] of its rows: when fitted to, and when left out by fifths or by repositories."""

    data: Data
    fit: Fit
    fitted: Numbers
    five_folds: Numbers
    source_left_out: Numbers

    @property
    def doubts(self) -> dict[str, float]:
        """What ranges have beside the stacks' own errors."""
        mask = self.data.printed
        return doubts(list(compress(self.data.rows, mask)), self.five_folds[mask], self.source_left_out[mask])

    @property
    def values(self) -> dict[str, float]:
        """All numbers; priors where no row says anything."""
        fitted = np.exp(self.fit.values)
        found = {name: float(value) for name, value in zip(self.fit.names, fitted, strict=True)}
        return {name: mean for name, (mean, _, _) in PRIORS.items()} | found

    def lines(self, mask: Mask, *names: str) -> list[str]:
        """The date, how many rows ``mask`` has, and their errors by name, as lines of a catalogue's table."""
        said = [f'date = "{datetime.now(tz=UTC).date()}"', f"rows = {mask.sum()}"]
        for name in names if mask.any() else ():
            median, ninety = figures(getattr(self, name)[mask])
            said.append(f"{name} = {{median = {median:.3f}, p90 = {ninety:.3f}}}")
        return said


def write(outcome: Outcome) -> None:
    """Writes catalog/efficiency.toml and the [time] and [fit.time] tables of catalog/stacks."""
    values = outcome.values
    lines = [
        "# How much of a device's datasheet real training reaches, over all software; the fields are explained in",
        "# spec/efficiency.py. Written by benchmarks/fit_time.py from published runs; a comment gives the prior and",
        "# where it comes from.",
        "[fit]",
        *outcome.lines(outcome.data.printed, "fitted", "five_folds", "source_left_out"),
        "",
        "[efficiency]",
        *(entry(name, name, values) for name in sorted(values) if "." not in name),
    ]
    for table in sorted({name.partition(".")[0] for name in values if "." in name and not name.startswith("stack:")}):
        names = [name for name in sorted(values) if name.startswith(f"{table}.")]
        # What only says how a device or a method differs is left out where it does not.
        names = [name for name in names if table not in WIDTHS or values[name] != 1]
        lines += ["", f"[efficiency.{table}]", *(entry(name.partition(".")[2], name, values) for name in names)]
    seen = sorted({generation(row.placed.run.cluster.device) for row in outcome.data.rows})
    place = lines.index("[efficiency]") + 1
    lines.insert(place, f"seen = {json.dumps(seen)}")
    lines += ["", "[efficiency.doubt]", *(f"{name} = {value:.3g}" for name, value in outcome.doubts.items() if value)]
    (CATALOG / "efficiency.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in sorted((CATALOG / "stacks").glob("*.toml")):
        write_stack(path, outcome)


def entry(key: str, name: str, values: Mapping[str, float]) -> str:
    """A line of the catalogue: value, prior, source."""
    mean, _, source = PRIORS.get(name, (1.0, 0.0, ""))
    key = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    return f"{key} = {values[name]:.3g}" + (f"  # prior {mean:g}: {source}" if source else "")


def write_stack(path: Path, outcome: Outcome) -> None:
    """The [time] and [fit.time] tables of one stack's file; what else stands there stays."""
    text = path.read_text(encoding="utf-8")
    if re.search(r"^time = ", text, flags=re.MULTILINE):  # another stack's
        return
    text = re.sub(r"\n*^\[(?:time|time\.tuned|fit\.time)\]\n(?:(?!\[).*\n?)*", "\n", text, flags=re.MULTILINE)
    tables = "\n".join(stack_tables(path.stem, outcome))
    path.write_text("\n\n".join(filter(None, (text.rstrip("\n"), tables))) + "\n", encoding="utf-8")


def stack_tables(name: str, outcome: Outcome) -> list[str]:
    """What the rows say of one stack; nothing where it has none. Derived rows count where printed ones are few."""
    mine = np.array([row.placed.run.stack.time_of == name for row in outcome.data.rows])
    if not mine.any():
        return []
    printed = mine & outcome.data.printed
    used = printed if printed.sum() >= PRIOR_ROWS else mine
    prefix = f"stack:{name}."
    told = {name: value for name, value in sorted(outcome.values.items()) if value != 1}
    own = {name.removeprefix(prefix): value for name, value in told.items() if name.startswith(prefix)}
    tuned = [f"{key.removeprefix('tuned.')} = {value:.3g}" for key, value in own.items() if key.startswith("tuned.")]
    return [
        "[time]",
        *(f"{key} = {value:.3g}" for key, value in own.items() if not key.startswith("tuned.")),
        f"spread = {spread(outcome.five_folds[used]):.3g}",
        *(["", "[time.tuned]", *tuned] if tuned else []),
        "",
        "[fit.time]",
        *outcome.lines(used, "five_folds", "source_left_out"),
    ]


def show_ranges(outcome: Outcome) -> None:
    """How many rows the ranges hold that a fit without their source would have printed."""
    mask = outcome.data.printed
    rows = list(compress(outcome.data.rows, mask))
    print("doubts:", "  ".join(f"{name}={value:.3g}" for name, value in outcome.doubts.items()))
    spreads = left_out_spreads(rows, outcome.five_folds[mask], outcome.doubts)
    print("source left out:", covered(rows, outcome.source_left_out[mask], spreads))


def show_kinds(data: Data, tasks: Mapping[str, str], left_out: Numbers) -> None:
    """Errors by kind of work: with each source left out, and with all rows of the kind."""
    kinds = np.array([kind_of_work(row, tasks[row.id]) for row in data.rows])
    without = held_out(data, kinds)
    for kind in sorted(set(kinds)):
        mask = (kinds == kind) & data.printed
        print(f"{kind + ', each source left out':44} {summary(left_out[mask])}")
        print(f"{kind + ', all of them left out':44} {summary(without[mask])}")


def main() -> None:
    """Fit, validate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="write the catalogue")
    how.add_argument("--quick", action="store_true", help="leave no source out")
    args = parser.parse_args()
    records = read_tables(args.tables)
    data = gather(questions(records)[0])
    fit = Fit(data).run()
    fitted = fit.errors(data)
    show("fitted to all rows", data, fitted)
    print(f"{fit.told} numbers are told by the rows, of {len(fit.names)}")
    print("  ".join(f"{name}={np.exp(value):.3g}" for name, value in zip(fit.names, fit.values, strict=True)))
    folds = held_out(data, np.random.default_rng(0).integers(0, FOLDS, len(data.rows)))
    show("five folds", data, folds)
    if args.quick:
        return
    left_out = held_out(data, np.array([row.source.partition("@")[0] for row in data.rows]))
    show("each source left out", data, left_out)
    outcome = Outcome(data=data, fit=fit, fitted=fitted, five_folds=folds, source_left_out=left_out)
    show_ranges(outcome)
    show_kinds(data, {record.text("id"): record.notes.get("task", "pretrain") for record in records}, left_out)
    if args.write:
        write(outcome)


if __name__ == "__main__":
    main()
