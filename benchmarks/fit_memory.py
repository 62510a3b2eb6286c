"""Fits what stacks keep in memory to published peaks, and says how well it holds elsewhere.

    python benchmarks/fit_memory.py runs.csv [more.csv] # errors on the rows, with each source left out, and of verdicts
    python benchmarks/fit_memory.py runs.csv --write    # the same, and writes the [memory] tables of catalog/stacks

Of a stack's ``[memory]`` table three numbers are fitted: ``activations`` (prior 1), ``fragmentation`` (prior that of
the default stack; only where peaks are reserved or the device's) and ``spread``; the other fields follow from its code.
The fit minimises the mean absolute logarithm of predicted over measured bytes, with ``PRIOR_ROWS`` rows' weight on the
priors. With a source left out, stacks that no other source runs fall back to their priors; ``framework not named`` asks
every row again as one of a framework that no file knows (``hardware.catalogue.stacks.unknown_stack``).
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import trainwright
from doubts import kind_of_work
from trainwright.hardware.catalogue.stacks import DEFAULT, read_stack
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.evidence.published_run import Row, questions
from trainwright.planner.evidence.rows import Record, read_tables
from trainwright.planner.forecast.memory.table import (
    INTERVAL_DEVIATIONS,
    MemoryTable,
    PipelineStage,
    deviation,
    predict_memory,
    usable_bytes,
)
from trainwright.spec.stack import Stack, StackMemory

STACKS = Path(trainwright.__file__).parent / "catalog" / "stacks"
ACTIVATIONS = np.round(np.arange(0.6, 1.61, 0.05), 2)
FRAGMENTATIONS = np.round(np.arange(0.0, 0.31, 0.01), 2)
PRIOR_ROWS = {"activations": 3.0, "fragmentation": 2.0}
"""The priors count as much as so many rows whose error is the distance from the prior. Activations are counted, and
held to torch's own tracker by a test; fragmentation is a habit of allocators."""
COVERED = 0.85
"""Share of rows that the interval is made wide enough for."""
SPREAD, SPREAD_ROWS = 0.15, 5.0
"""The spread of a stack whose code is known, and of how many rows it has the weight."""

Stacks = Callable[[Row], Stack]


@dataclass(frozen=True)
class Fitted:
    """A stack's three numbers."""

    activations: float
    fragmentation: float
    spread: float

    def on(self, memory: StackMemory) -> StackMemory:
        """The table with these numbers."""
        return replace(memory, activations=self.activations, fragmentation=self.fragmentation, spread=self.spread)


def predict(row: Row, stack: Stack, stage: PipelineStage | None = None) -> MemoryTable:
    """The peak of a row under a stack, on the pipeline stage that was measured."""
    run = replace(row.placed.run, stack=stack)
    return predict_memory(run, Layouts.one(row.placed), stage=stage or row.measured.memory_stage)


def _reported(table: MemoryTable, row: Row) -> Numbers:
    """The peak as the row's source defines it."""
    assert row.measured.memory_kind is not None
    return table.reported(row.measured.memory_kind, row.placed.run.cluster.device)


def log_error(row: Row, stack: Stack) -> float:
    """Logarithm of predicted over measured bytes."""
    peak = _reported(predict(row, stack), row)[0]
    return float(np.log(peak / row.measured.memory_bytes))


def fit(rows: list[Row], memory: StackMemory) -> Fitted:
    """The three numbers for the rows of one stack."""
    prior = read_stack(DEFAULT).memory
    base = rows[0].placed.run.stack
    best, least = (1.0, prior.fragmentation), np.inf
    for activations in ACTIVATIONS:
        stack = replace(base, memory=replace(memory, activations=float(activations), fragmentation=0.0))
        tables = [predict(row, stack) for row in rows]
        plain = np.array([_reported(table, row)[0] for table, row in zip(tables, rows, strict=True)])
        unused = np.array(
            [
                0.0 if row.measured.memory_kind == "allocated" else table.allocated_bytes[0]
                for table, row in zip(tables, rows, strict=True)
            ]
        )
        full = [replace(table, reserved_unused=np.full(1, np.inf)) for table in tables]
        most = np.array([_reported(table, row)[0] for table, row in zip(full, rows, strict=True)])
        measured = np.array([row.measured.memory_bytes for row in rows])
        for fragmentation in FRAGMENTATIONS if unused.any() else [memory.fragmentation]:
            error = np.abs(np.log(np.minimum(plain + fragmentation * unused, most) / measured)).sum()
            error += PRIOR_ROWS["activations"] * abs(np.log(activations))
            error += PRIOR_ROWS["fragmentation"] * abs(fragmentation - prior.fragmentation)
            if error < least:
                best, least = (float(activations), float(fragmentation)), error
    chosen = replace(base, memory=replace(memory, activations=best[0], fragmentation=best[1]))
    errors = np.abs([log_error(row, chosen) for row in rows])
    own = np.quantile(errors, COVERED) / INTERVAL_DEVIATIONS
    spread = np.sqrt((len(rows) * own**2 + SPREAD_ROWS * SPREAD**2) / (len(rows) + SPREAD_ROWS))
    return Fitted(best[0], best[1], round(float(spread), 3))


def fit_all(rows: Iterable[Row], known: dict[tuple[str, ...], Fitted] | None = None) -> dict[str, Fitted]:
    """Every stack that has rows; ``known`` are fits by the rows' names, so that none is made twice."""
    known = {} if known is None else known
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.placed.run.stack.memory_of].append(row)
    found = {}
    for name, group in sorted(groups.items()):
        key = tuple(row.id for row in group)
        if key not in known:
            known[key] = fit(group, group[0].placed.run.stack.memory)
        found[name] = known[key]
    return found


def with_numbers(numbers: dict[str, Fitted]) -> Stacks:
    """Each row's stack with the numbers fitted to it, or with the default's."""
    prior = read_stack(DEFAULT).memory
    unknown = Fitted(1.0, prior.fragmentation, SPREAD)

    def stack(row: Row) -> Stack:
        own = row.placed.run.stack
        return replace(own, memory=numbers.get(own.memory_of, unknown).on(own.memory))

    return stack


def show(title: str, rows: list[Row], stacks: Stacks) -> None:
    """Error, bias and coverage of the interval, in all and by source."""
    errors = np.array([log_error(row, stacks(row)) for row in rows])
    inside = np.array(
        [
            abs(error) <= INTERVAL_DEVIATIONS * deviation(replace(row.placed.run, stack=stacks(row)))
            for error, row in zip(errors, rows, strict=True)
        ]
    )
    sources = np.array([row.source.split("@")[0][:34] for row in rows])
    for name in ("all", *sorted(set(sources))):
        mask = np.ones(len(rows), bool) if name == "all" else sources == name
        size = np.abs(np.expm1(errors[mask]))
        print(
            f"{title if name == 'all' else '  ' + name:36} n {mask.sum():4d}  median {np.median(size):6.1%}  "
            f"p90 {np.quantile(size, 0.9):6.1%}  bias {np.expm1(np.median(errors[mask])):+6.1%}  "
            f"in interval {inside[mask].mean():4.0%}"
        )


def left_out(rows: list[Row]) -> Stacks:
    """For each row, its stack with numbers fitted without its source."""
    owners = sorted({row.source for row in rows})
    known: dict[tuple[str, ...], Fitted] = {}
    found = {owner: with_numbers(fit_all((row for row in rows if row.source != owner), known)) for owner in owners}
    return lambda row: found[row.source](row)


def show_growth(rows: list[Row], inside: Stacks, outside: Stacks, nameless: list[Row]) -> None:
    """What errors grow by, in squares, without the source, and without the framework's name; a source counts as one."""

    def squared(judged: list[Row], stacks: Stacks) -> float:
        errors: defaultdict[str, list[float]] = defaultdict(list)
        for row in judged:
            errors[row.source.partition("@")[0]].append(abs(log_error(row, stacks(row))))
        each = [(np.quantile(own, COVERED) / INTERVAL_DEVIATIONS) ** 2 for own in errors.values()]
        return float(np.median(each))

    base = squared(rows, inside)
    grown = (squared(rows, outside) - base, squared(nameless, lambda row: row.placed.run.stack) - base)
    without_source, without_name = (np.sqrt(max(0.0, each)) for each in grown)
    print(
        f"deviation that comes without the source {without_source:.3f}, without the framework's name {without_name:.3f}"
    )


def unnamed(records: list[Record], rows: list[Row]) -> list[Row]:
    """The rows asked again without the framework's name: as that of one that no file knows would be."""
    measured = {row.id: row.measured for row in rows}
    asked = questions(replace(record, values={**record.values, "framework": ""}) for record in records)[0]
    return [replace(row, measured=measured[row.id]) for row in asked if row.id in measured]


def show_verdicts(rows: list[Row], stacks: Stacks) -> None:
    """How often "fits" and "does not fit" are right, with and without those near the edge."""
    sure: list[str] = []
    ran: list[tuple[bool, bool]] = []
    failed: list[tuple[bool, bool]] = []
    for row in rows:
        device = row.placed.run.cluster.device
        table = predict(row, stacks(row), stage="worst")
        fits, near = bool(table.fits(device)[0]), bool(table.uncertain(device)[0])
        (failed if row.measured.out_of_memory else ran).append((fits, near))
        if row.measured.out_of_memory and fits:
            sure.append(f"{row.id} {table.needed_bytes[0] / usable_bytes(device):.2f}")
    right = sum(fits for fits, _ in ran) + sum(not fits for fits, _ in failed)
    print(
        f"verdicts: {right / len(rows):.1%} right of {len(rows)}; false alarms {np.mean([not f for f, _ in ran]):.1%}, "
        f"certain ones {np.mean([not f and not n for f, n in ran]):.1%}; out of memory found "
        f"{sum(not f for f, _ in failed)} of {len(failed)}, or uncertain {sum(f and n for f, n in failed)}; "
        f"uncertain {np.mean([n for _, n in ran + failed]):.1%} of all; missed: {', '.join(sure) or 'none'}"
    )


def write(numbers: dict[str, Fitted], rows: list[Row], outside: Stacks) -> None:
    """Put the numbers and their errors into the stacks' files."""
    inside = with_numbers(numbers)
    for name, fitted in numbers.items():
        mine = [row for row in rows if row.placed.run.stack.memory_of == name]
        path = STACKS / f"{name}.toml"
        text = re.sub(r"\n\[fit\.memory\]\n(?:[^\[\n].*\n)*", "", path.read_text(encoding="utf-8"))
        values = {key: getattr(fitted, key) for key in ("activations", "fragmentation", "spread")}
        for key in values:
            text = re.sub(rf"(?ms)(^\[memory\]\n[^\[]*?)^{key} = [^\n]*\n", r"\1", text, count=1)
        lines = "".join(f"{key} = {value:g}\n" for key, value in values.items())
        text = re.sub(r"(?m)^(\[memory\]\n(?:[^\[\n].*\n)*)", rf"\g<1>{lines}", text, count=1)
        text += f'\n[fit.memory]\ndate = "{datetime.now(tz=UTC).date()}"\nrows = {len(mine)}\n'
        text += f"on_these = {errors_of(mine, inside)}\nsource_left_out = {errors_of(mine, outside)}\n"
        path.write_text(re.sub(r"\n{3,}", "\n\n", text), encoding="utf-8")


def errors_of(rows: list[Row], stacks: Stacks) -> str:
    """Median and 90th percentile as an inline table."""
    size = np.abs(np.expm1([log_error(row, stacks(row)) for row in rows]))
    return f"{{median = {np.median(size):.3f}, p90 = {np.quantile(size, 0.9):.3f}}}"


def main() -> None:
    """Fit, validate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    records = read_tables(args.tables)
    everything = questions(records)[0]
    rows = [row for row in everything if row.measured.memory_bytes]
    numbers = fit_all(rows)
    for name, fitted in numbers.items():
        print(f"{name:22} {fitted}")
    outside = left_out(rows)
    show("fitted to all rows", rows, with_numbers(numbers))
    show("each source left out", rows, outside)
    tasks = {record.text("id"): record.notes.get("task", "pretrain") for record in records}
    tuning = [row for row in rows if kind_of_work(row, tasks[row.id]) in ("adapters", "full tuning")]
    show("tuning, each source left out", tuning, outside)
    show("framework not named", unnamed(records, rows), lambda row: row.placed.run.stack)
    show_growth(rows, with_numbers(numbers), outside, unnamed(records, rows))
    show_verdicts(
        everything, with_numbers({**{row.placed.run.stack.memory_of: _given(row) for row in everything}, **numbers})
    )
    if args.write:
        write(numbers, rows, outside)


def _given(row: Row) -> Fitted:
    """What the catalogue says of a stack without measured peaks."""
    memory = row.placed.run.stack.memory
    return Fitted(memory.activations, memory.fragmentation, memory.spread)


if __name__ == "__main__":
    main()
