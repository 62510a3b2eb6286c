"""Fits the planner's efficiency numbers to published throughput, and says how well they hold elsewhere.

    python benchmarks/fit_time.py runs.csv                 # errors on the rows, and with each source left out
    python benchmarks/fit_time.py runs.csv --write         # the same, and writes catalog/efficiency.toml and stacks/*.toml

Every number has a prior (a datasheet, a measurement of matrix products alone, or 1 for what only says how one stack
differs from others) with a width; the fit minimises the pseudo-Huber loss of log(predicted / measured) step time plus
the squared distance from the priors. Needs scipy (``pip install -e .[dev]``).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import trainwright
from trainwright.core.errors import RecipeError
from trainwright.planner.predict.exchange import Exchange, exchange
from trainwright.planner.predict.layouts import Layouts
from trainwright.planner.predict.step import Rates, combine, ingredients
from trainwright.planner.predict.work import Work, forward_work
from trainwright.planner.published.question import Row, questions
from trainwright.planner.published.rows import read_records

CATALOG = Path(trainwright.__file__).parent / "catalog"
NOISE = 0.08
"""Log error beyond which a row counts linearly: what shapes and settings that rows do not print are worth."""
SOURCE_ROWS = 40
"""A source with more rows than this counts as much as one with so many."""
PRIOR_SPREAD, PRIOR_ROWS = 0.3, 8
"""Log error of a stack that no row was fitted to, and how many rows that is worth."""
DERIVED_WEIGHT = 0.3
"""Weight of rows whose tokens per second follow from a step time of tiny models in continuous integration."""

MAMF = "maximum achievable matmul FLOP/s, stas00/ml-engineering@744d01e"
PRIORS: dict[str, tuple[float, float, str]] = {
    "products.hopper": (0.80, 0.06, f"H100 SXM 794 of 989 TFLOP/s: {MAMF}"),
    "products.ampere": (0.87, 0.06, f"A100 SXM 271 of 312 TFLOP/s: {MAMF}"),
    "products.blackwell": (0.75, 0.06, f"B200 77.6 %, GB200 72.9 %: {MAMF}"),
    "products.rocm": (0.55, 0.1, f"MI300X 51 %, MI355X 60 %: {MAMF}"),
    "products.tpu": (0.85, 0.06, f"TPU v6e 96.9 %: {MAMF}; older ones unknown"),
    "products.ampere-rtx": (0.85, 0.06, "as A100"), "products.ada": (0.75, 0.06, "default"),
    "products.volta": (0.75, 0.06, "default"), "products.pascal": (0.85, 0.06, "default: no tensor cores"),
    "products.npu": (0.70, 0.06, "default"), "products.neuron": (0.70, 0.06, "default"),
    "products.hpu": (0.70, 0.06, "default"), "products.default": (0.70, 0.06, "default"),
    "attention.hopper": (0.42, 0.2, "FlashAttention-2 forward and backward, a third of the peak (arXiv 2407.08608)"),
    "attention.ampere": (0.5, 0.2, "between FlashAttention 1 and 2, forward and backward (arXiv 2307.08691, figure 4)"),
    "attention.default": (0.5, 0.2, "as Ampere"),
    "precisions.fp8": (0.85, 0.12, "default: scaling and casts"), "precisions.nvfp4": (0.6, 0.2, "default"),
    "precisions.default": (1.0, 0.001, "by definition"), "precisions.tf32": (1.0, 0.1, "default"),
    "traffic.eager": (1.8, 0.2, "default: one kernel for each line"), "traffic.fused": (1.0, 0.25, "default"),
    "traffic.compiled": (1.0, 0.25, "default"),
    "tiles": (0.5, 0.5, "default"), "unaligned": (0.85, 0.1, "NVIDIA's matrix multiplication guide, figure 2"),
    "operands": (1.0, 0.3, "default"), "scores": (5.0, 0.3, "count of kernels"), "encoder": (5.0, 0.3, "count of kernels"),
    "loss": (8.0, 0.25, "count of kernels"), "fused_loss": (0.4, 0.2, "default"), "casts": (6.0, 0.3, "read 4, write 2"),
    "launch_s": (6e-6, 0.15, "default: an asynchronous launch from Python"), "expert_kernels": (60.0, 0.4, "default"),
    "expert_traffic": (1.5, 0.3, "default"), "selective": (0.4, 0.3, "default"), "tensor": (0.8, 0.3, "default"),
    "context": (0.5, 0.4, "default"), "expert": (0.7, 0.4, "default"), "sharded": (0.1, 0.4, "default"),
    "gradients": (0.7, 0.4, "default"), "bus": (1.5, 0.3, "default"), "bus_sharing": (0.3, 0.4, "default"),
    "update": (1.5, 0.3, "default"), "bubble": (1.0, 0.2, "the schedule's"), "bandwidth": (0.85, 0.001, "STREAM on GPUs"),
    "adapters.lora": (1.0, 0.1, "by definition"),
}  # fmt: skip
WIDTHS = {"devices": 0.06, "adapters": 0.3, "stack.compute": 0.07, "stack.attention": 0.15, "stack.traffic": 0.2,
          "stack.launch": 0.5, "stack.tuned": 0.08}  # fmt: skip
"""Widths around 1 of what only says how a device, a method or a stack differs."""


@dataclass
class Data:
    """Rows as arrays; ``places[field]`` lists, for each factor of that rate, the index of its number in each row."""

    rows: list[Row]
    work: Work
    sent: Exchange
    shape: Layouts
    log_step_s: np.ndarray
    weight: np.ndarray
    names: list[list[tuple[str, ...]]]


def stack_of(row: Row, name: str) -> str:
    """A stack's number, by its stack."""
    return f"stack:{row.request.stack.name}.{name.removeprefix('stack.')}" if name.startswith("stack.") else name


def joined(parts: list, kind: type):
    """Many tables of one entry each as one table."""
    return kind(**{
        field.name: np.concatenate([np.broadcast_to(np.asarray(getattr(part, field.name), float), 1) for part in parts])
        for field in fields(kind)
    })  # fmt: skip


def gather(rows: list[Row]) -> Data:
    """Everything about the rows that does not depend on what is fitted."""
    works, sents, shapes, steps, names, kept = [], [], [], [], [], []
    for row in rows:
        ask, shape = row.request, row.request.layouts()
        if not row.measured.tokens_per_s:
            continue
        try:
            works.append(forward_work(ask.model, ask.workload, shape, ask.cluster.device))
        except RecipeError:  # the datasheet has no rate for the row's precision
            continue
        sents.append(exchange(ask.model, ask.workload, shape, ask.cluster))
        shapes.append(shape)
        kept.append(row)
        steps.append(np.log(ask.workload.batch_tokens / shape.devices[0] / row.measured.tokens_per_s))
        parts = ingredients(ask.model, ask.workload, ask.cluster, ask.stack)
        names.append([tuple(stack_of(row, part) for part in parts[field.name]) for field in fields(Rates)])
    counts = Counter(row.source for row in kept)
    weight = [
        (DERIVED_WEIGHT if row.measured.derived else 1.0) / max(1.0, counts[row.source] / SOURCE_ROWS) ** 0.5
        for row in kept
    ]
    return Data(kept, joined(works, Work), joined(sents, Exchange), joined(shapes, Layouts), np.array(steps),
                np.array(weight), names)  # fmt: skip


def chosen(data: Data, mask: np.ndarray) -> Data:
    """The rows of ``mask``."""
    pick = lambda table, kind: kind(**{field.name: getattr(table, field.name)[mask] for field in fields(kind)})  # noqa: E731
    places = np.flatnonzero(mask)
    return Data([data.rows[i] for i in places], pick(data.work, Work), pick(data.sent, Exchange), pick(data.shape, Layouts),
                data.log_step_s[mask], data.weight[mask], [data.names[i] for i in places])  # fmt: skip


def prior(name: str) -> tuple[float, float]:
    """Mean and width of the logarithm."""
    if name in PRIORS:
        return np.log(PRIORS[name][0]), PRIORS[name][1]
    table = name.split(".")[0]
    if name.startswith("stack:"):
        return 0.0, WIDTHS["stack." + re.sub(r"^stack:.*?\.(compute|attention|traffic|launch|tuned).*", r"\1", name)]
    if table in WIDTHS:
        return 0.0, WIDTHS[table]
    mean, width, _ = PRIORS[f"{table}.default"]
    return np.log(mean), width


class Fit:
    """Values of all numbers that occur in the rows, and the model as a function of them."""

    def __init__(self, data: Data) -> None:
        self.names = sorted({part for row in data.names for parts in row for part in parts})
        self.prior = np.array([prior(name) for name in self.names]).reshape(-1, 2)
        self.values = self.prior[:, 0].copy()

    def places(self, data: Data) -> list[np.ndarray]:
        """For each field of Rates: indices [R, K] of its factors; the last index stands for 1, unseen ones for priors."""
        index = {name: number for number, name in enumerate(self.names)}
        unseen = sorted({part for row in data.names for parts in row for part in parts} - set(index))
        self.extra = np.array([prior(name)[0] for name in unseen])
        index |= {name: len(self.names) + number for number, name in enumerate(unseen)}
        one = len(index)
        found = []
        for field in range(len(fields(Rates))):
            depth = max(len(row[field]) for row in data.names)
            found.append(np.array([
                [index[part] for part in row[field]] + [one] * (depth - len(row[field])) for row in data.names
            ], dtype=int).reshape(len(data.names), depth))  # fmt: skip
        return found

    def log_step_s(self, values: np.ndarray, data: Data, places: list[np.ndarray]) -> np.ndarray:
        """Predicted logarithm of the step's seconds."""
        table = np.concatenate([values, self.extra, [0.0]])
        rate = Rates(**{
            field.name: np.exp(table[place].sum(axis=1)) for field, place in zip(fields(Rates), places, strict=True)
        })  # fmt: skip
        return np.log(combine(data.work, data.sent, data.shape, rate).total_s)

    def run(self, data: Data) -> Fit:
        """Find the values."""
        places = self.places(data)

        def residuals(values: np.ndarray) -> np.ndarray:
            error = (self.log_step_s(values, data, places) - data.log_step_s) / NOISE
            huber = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
            return np.concatenate([huber * data.weight, (values - self.prior[:, 0]) / self.prior[:, 1]])

        self.values = least_squares(residuals, self.prior[:, 0], max_nfev=40).x
        return self

    def errors(self, data: Data) -> np.ndarray:
        """log(predicted / measured) seconds of each row."""
        return self.log_step_s(self.values, data, self.places(data)) - data.log_step_s


def summary(errors: np.ndarray) -> str:
    """Median and 90th percentile of the error of tokens per second."""
    size = np.abs(np.expm1(-errors))
    return f"n {len(size):4d}  median {np.median(size):6.1%}  p90 {np.quantile(size, 0.9):7.1%}  bias {np.expm1(-np.median(errors)):+6.1%}"


def show(title: str, data: Data, errors: np.ndarray) -> None:
    """The summary of printed rows, and of each source."""
    printed = np.array([not row.measured.derived for row in data.rows])
    print(f"{title:44} {summary(errors[printed])}")
    dense = np.array([row.model_class == "decoder" and row.request.workload.precision in ("bf16", "fp16")
                      and row.request.workload.adapter is None for row in data.rows]) & printed  # fmt: skip
    print(f"{'  dense decoders, 16 bit, all weights':44} {summary(errors[dense])}")
    for source in sorted({row.source for row in data.rows}):
        for kind, mask in (("", printed), (" (derived)", ~printed)):
            chosen_rows = np.array([row.source == source for row in data.rows]) & mask
            if chosen_rows.any():
                print(f"  {source[:30] + kind:42} {summary(errors[chosen_rows])}")


def left_out(data: Data) -> np.ndarray:
    """Errors of each repository's rows with numbers fitted without any of them."""
    errors = np.zeros(len(data.rows))
    owners = np.array([row.source.split("@")[0] for row in data.rows])
    for owner in sorted(set(owners)):
        mask = owners == owner
        errors[mask] = Fit(rest := chosen(data, ~mask)).run(rest).errors(chosen(data, mask))
    return errors


def folds(data: Data, count: int = 5) -> np.ndarray:
    """Errors of each fifth of the rows with numbers fitted to the others."""
    errors = np.zeros(len(data.rows))
    fold = np.random.default_rng(0).integers(0, count, len(data.rows))
    for number in range(count):
        mask = fold == number
        errors[mask] = Fit(rest := chosen(data, ~mask)).run(rest).errors(chosen(data, mask))
    return errors


def spread(errors: np.ndarray) -> float:
    """The standard deviation whose normal distribution has the errors' 80th percentile; widened where rows are few.

    The prior is that of sources left out: what is not known of a stack is as uncertain as a stack that is not known.
    """
    count = len(errors)
    own = float(np.quantile(np.abs(errors), 0.8)) / 1.2816 if count else PRIOR_SPREAD
    return float(np.sqrt((count * own**2 + PRIOR_ROWS * PRIOR_SPREAD**2) / (count + PRIOR_ROWS)))


def figures(errors: np.ndarray) -> tuple[float, float]:
    """Median and 90th percentile of the error of tokens per second."""
    size = np.abs(np.expm1(-errors))
    return (float(np.median(size)), float(np.quantile(size, 0.9))) if len(size) else (0.0, 0.0)


def write(fit: Fit, data: Data, held: np.ndarray, out: np.ndarray) -> None:
    """Writes catalog/efficiency.toml and the [time] and [fit] tables of catalog/stacks."""
    values = {name: float(np.exp(value)) for name, value in zip(fit.names, fit.values, strict=True)}
    values |= {name: float(mean) for name, (mean, _, _) in PRIORS.items() if name not in values}
    printed = np.array([not row.measured.derived for row in data.rows])
    lines = [
        "# How much of a device's datasheet real training reaches, over all software; the fields are explained in",
        "# spec/efficiency.py. Written by benchmarks/fit_time.py from published runs; a comment gives the prior and where it",
        "# comes from.", "[fit]", f'date = "{date.today()}"', f"rows = {printed.sum()}",
    ]  # fmt: skip
    for name, errors in (("fitted", fit.errors(data)), ("five_folds", held), ("source_left_out", out)):
        median, ninety = figures(errors[printed])
        lines.append(f"{name} = {{median = {median:.3f}, p90 = {ninety:.3f}}}")
    plain = [name for name in values if "." not in name]
    lines += ["", "[efficiency]", *(entry(name, name, values) for name in sorted(plain))]
    tables = sorted({name.split(".")[0] for name in values if "." in name and not name.startswith("stack")})
    for table in tables:
        lines += ["", f"[efficiency.{table}]"]
        lines += [
            entry(name.partition(".")[2], name, values) for name in sorted(values)
            if name.startswith(f"{table}.") and not (table in WIDTHS and abs(np.log(values[name])) < 0.005)
        ]  # fmt: skip
    (CATALOG / "efficiency.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in sorted((CATALOG / "stacks").glob("*.toml")):
        write_stack(path, values, data, held, out, printed)


def entry(key: str, name: str, values: dict[str, float]) -> str:
    """A line of the catalogue: value, prior, source."""
    mean, _, source = PRIORS.get(name, (1.0, 0.0, ""))
    key = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    return f"{key} = {values[name]:.3g}" + (f"  # prior {mean:g}: {source}" if source else "")


def write_stack(
    path: Path, values: dict[str, float], data: Data, held: np.ndarray, out: np.ndarray, printed: np.ndarray
) -> None:
    """The [time] and [fit.time] tables of one stack's file; what else stands there stays."""
    name = path.stem
    mine = np.array([row.request.stack.name == name for row in data.rows])
    used = mine & printed if (mine & printed).sum() >= PRIOR_ROWS or not mine.any() else mine
    prefix = f"stack:{name}."
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    lines = ["[time]", *(f"{key} = {value:.3g}" for key, value in sorted(own.items()) if not key.startswith("tuned."))]
    lines.append(f"spread = {spread(held[used]):.3g}")
    tuned = {key.removeprefix("tuned."): value for key, value in own.items() if key.startswith("tuned.")}
    if tuned:
        lines += ["", "[time.tuned]", *(f"{key} = {value:.3g}" for key, value in sorted(tuned.items()))]
    lines += ["", "[fit.time]", f'date = "{date.today()}"', f"rows = {used.sum()}"]
    if used.any():
        for title, errors in (("five_folds", held), ("source_left_out", out)):
            median, ninety = figures(errors[used])
            lines.append(f"{title} = {{median = {median:.3f}, p90 = {ninety:.3f}}}")
    text = path.read_text(encoding="utf-8")
    if re.search(r"^time = ", text, flags=re.MULTILINE):  # another stack's
        return
    if not mine.any():
        lines = []
    text = re.sub(r"\n*^\[(?:time|time\.tuned|fit\.time)\]\n(?:(?!\[).*\n?)*", "\n", text, flags=re.MULTILINE).rstrip(
        "\n"
    )
    path.write_text("\n\n".join(filter(None, (text, "\n".join(lines)))) + "\n", encoding="utf-8")


def main() -> None:
    """Fit, validate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="leave no source out")
    args = parser.parse_args()
    data = gather(questions(read_records(args.table))[0])
    fit = Fit(data).run(data)
    own = fit.errors(data)
    show("fitted to all rows", data, own)
    print("  ".join(f"{name}={np.exp(value):.3g}" for name, value in zip(fit.names, fit.values, strict=True)))
    held = folds(data)
    show("five folds", data, held)
    out = own if args.quick else left_out(data)
    if not args.quick:
        show("each source left out", data, out)
    if args.write:
        write(fit, data, held, out)


if __name__ == "__main__":
    main()
