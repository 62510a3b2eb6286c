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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import trainwright
from doubts import covered, doubts, figures, is_plain, kind_of_work, left_out_spreads, spread, summary
from priors import MATMUL, PRIORS, WIDTHS
from rate_fit import TOLD, Data, Fit, Mask, gather, generation_of, lineage
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.evidence.published_run import Row, questions
from trainwright.planner.evidence.rows import read_tables
from trainwright.planner.rates.catalogue import PRIOR_ROWS

CATALOG = Path(trainwright.__file__).parent / "catalog"
FOLDS = 5


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
    """A fit with the errors [R] of its rows: when fitted to, and when left out by fifths or by repositories.

    ``unseen``: with all rows of their stack on their generation of devices left out.
    """

    data: Data
    fit: Fit
    fitted: Numbers
    five_folds: Numbers
    source_left_out: Numbers
    unseen: Numbers

    @property
    def doubts(self) -> dict[str, float]:
        """What ranges have beside the stacks' own errors."""
        mask = self.data.printed
        errors = (each[mask] for each in (self.five_folds, self.source_left_out, self.unseen))
        return doubts(list(compress(self.data.rows, mask)), *errors)

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
        f"# where it comes from, or that it stays its prior: assumed, as runs move it by less than {100 * TOLD:g} %.",
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
    rows = Counter(map(generation_of, outcome.data.rows))
    place = lines.index("[efficiency]") + 1
    lines.insert(place, f"seen = {json.dumps(sorted(rows))}")
    shares = (f"{name} = {share:g}  # {source}" for name, (share, source) in sorted(MATMUL.items()))
    lines += ["", "[efficiency.matmul]", *shares]
    spans = span_of(outcome.data.rows).items()
    lines += ["", "[efficiency.span]", *(f"{name} = [{low:.3g}, {high:.3g}]" for name, (low, high) in spans)]
    lines += ["", "[efficiency.rows]", *(f"{name} = {rows[name]}" for name in sorted(rows))]
    lines += ["", "[efficiency.doubt]", *(f"{name} = {value:.3g}" for name, value in outcome.doubts.items() if value)]
    (CATALOG / "efficiency.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in sorted((CATALOG / "stacks").glob("*.toml")):
        write_stack(path, outcome)


ENDS = 0.01, 0.99
"""Shares of the rows below the ends of a span."""


def span_of(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Between what 98 of 100 rows of language models lie: parameters, tokens of a sequence, of a step on a device."""
    runs = [row.placed.run for row in rows if not row.placed.run.model.sees_images]
    values = {
        "parameters": [total_parameters(run.model) for run in runs],
        "sequence_tokens": [run.workload.sequence_tokens for run in runs],
        "step_tokens_per_device": [run.workload.batch_tokens / run.cluster.devices for run in runs],
    }
    low, high = ({name: float(np.quantile(np.array(each, float), at)) for name, each in values.items()} for at in ENDS)
    return {name: (low[name], high[name]) for name in values}


def entry(key: str, name: str, values: Mapping[str, float]) -> str:
    """A line of the catalogue: value, prior or that it stays it, source."""
    mean, _, source = PRIORS.get(name, (1.0, 0.0, ""))
    key = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    value = f"{values[name]:.3g}"
    told = "stays its prior" if value == f"{mean:.3g}" else f"prior {mean:g}"
    return f"{key} = {value}" + (f"  # {told}: {source}" if source else "")


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
    own: dict[str, float] = {}
    for stack in lineage(name):  # a number's start is that of the release before
        prefix = f"stack:{stack}."
        for key, value in outcome.values.items():
            if key.startswith(prefix):
                own[key.removeprefix(prefix)] = own.get(key.removeprefix(prefix), 1.0) * value
    if "tensor" in own:  # no more than all of a message is exposed, as the fit counts it
        own["tensor"] = min(own["tensor"], 1 / outcome.values["tensor"])
    own = {key: value for key, value in sorted(own.items()) if value != 1}
    tuned = [f"{key.removeprefix('tuned.')} = {value:.3g}" for key, value in own.items() if key.startswith("tuned.")]
    return [
        "[time]",
        *(f"{key} = {value:.3g}" for key, value in own.items() if not key.startswith("tuned.")),
        f"seen = {json.dumps(sorted({generation_of(row) for row in compress(outcome.data.rows, mine)}))}",
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
    tuning = np.isin(kinds, ("adapters", "full tuning")) & data.printed
    print(f"{'tuning (both), each source left out':44} {summary(left_out[tuning])}")


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
    unseen = held_out(data, np.array([f"{row.placed.run.stack.time_of} {generation_of(row)}" for row in data.rows]))
    show("each stack's rows on a generation left out", data, unseen)
    outcome = Outcome(data=data, fit=fit, fitted=fitted, five_folds=folds, source_left_out=left_out, unseen=unseen)
    show_ranges(outcome)
    show_kinds(data, {record.text("id"): record.notes.get("task", "pretrain") for record in records}, left_out)
    if args.write:
        write(outcome)


if __name__ == "__main__":
    main()
