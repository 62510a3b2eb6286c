"""Reads our own ledgers of finished runs, and says what was run where.

A line that cannot be read, or was written in an older form, is counted and reported with the reason; it never keeps a
plan from being made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.core.errors import DataError, RecipeError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import regular
from trainwright.core.records import from_json
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.planner.evidence.ledger import FORMAT, MEMORY, is_ledger, step_s
from trainwright.spec.convnet import counted
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import PlacedRun, RunSpec
from trainwright.spec.workload import ParallelPlan, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A line of the ledger: ``step_s`` seconds and ``peak_bytes`` as measured; ``torch`` its version."""

    run: str
    finished_unix_s: float
    device: str
    devices: int
    cores: int | None
    host_memory_bytes: int | None
    torch: str | None
    model: ModelSpec
    workload: Workload
    parallel: ParallelPlan
    step_s: float
    peak_bytes: float
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """As ``Plan.unmeasured``; lines of older versions do not say it."""

    def unlike(self, unmeasured: Mapping[str, str]) -> str | None:
        """Returns the reason why the run was of something else than it is counted as; None where it was not."""
        if self.workload.ramp:
            return "whose batch grew: its mean step is of no one batch"
        others = (each for each in self.unmeasured.items() if each not in unmeasured.items())
        return next((f"with {kind} {name!r}, which is counted as another" for kind, name in others), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """All runs that could be read, newest first; ``broken`` says of each other line where it stands and why not."""

    runs: tuple[FinishedRun, ...] = ()
    broken: tuple[str, ...] = ()


def read_ledgers(paths: Iterable[Path]) -> Ledger:
    """Returns every run of some ledgers, one that stands in several of them once.

    Raises:
        DataError: a file cannot be opened.
    """
    runs: dict[tuple[str, float], FinishedRun] = {}
    broken: list[str] = []
    for path in paths:
        for place, text in enumerate(_lines(path), start=1):
            if not text.strip():
                continue
            try:
                run = finished_run(json.loads(text), where=f"{path}:{place}")
            except (ValueError, TrainwrightError) as error:
                broken.append(f"{path}:{place}: {error.seen if isinstance(error, DataError) else error}")
                continue
            runs.setdefault((run.run, run.step_s), run)
    return Ledger(runs=tuple(sorted(runs.values(), key=lambda run: -run.finished_unix_s)), broken=tuple(broken))


def _lines(path: Path) -> list[str]:
    try:
        text = regular(path).read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        raise RecipeError("no such file", where=path) from None
    except OSError as error:
        raise DataError("cannot read the ledger", where=path, seen=error.strerror or str(error)) from None
    return text.splitlines()


def finished_run(line: Any, *, where: str) -> FinishedRun:
    """Returns one line of a ledger as a run.

    Raises:
        ValueError: it is no line of a ledger, of another form, or its measurements are none.
        DataError: a field is missing or of the wrong type.
    """
    if not isinstance(line, dict) or not is_ledger(line):
        raise ValueError("no line of a ledger")
    if line.get("format") != FORMAT:
        raise ValueError(f"of form {line.get('format', 1)}, this version reads {FORMAT}")
    rows = line["rows"]
    if not isinstance(rows, dict) or not all(_is_pair(pair) for pair in rows.values()):
        raise ValueError("rows are no pairs of numbers")
    plain = {name: line.get(name) for name in FinishedRun.__dataclass_fields__ if name not in _MEASURED}
    plain["unmeasured"] = line.get("unmeasured", {})
    if "parallel" not in line:
        plain["parallel"] = _layout_of_old_line(line)
    plain |= {"step_s": step_s(rows), "peak_bytes": float(rows.get(MEMORY, (0, 0))[1])}
    run = from_json(FinishedRun, plain, where=where)
    if not (0 < run.step_s < 1e9 and 0 < run.peak_bytes < 1e18 and 0 < run.finished_unix_s < 1e11):
        raise ValueError("no seconds of a step, or no peak of memory")
    layout = run.parallel
    axes = (layout.dp_replicate, layout.dp_shard, layout.tp, layout.pp, layout.cp)
    divides = min(*axes, layout.ep, layout.virtual_stages, layout.micro_batch_sequences) > 0
    if not divides or math.prod(axes) != run.devices or run.model.problems() or run.workload.problems(run.model):
        raise ValueError("sizes that cannot be")
    return run


_MEASURED = ("step_s", "peak_bytes")


def _layout_of_old_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the layout of a line that was written before lines kept all of it: replicas on all devices."""
    return {
        "micro_batch_sequences": line.get("micro_batch"),
        "compile": line.get("compile"),
        "threads": line.get("threads"),
        "dp_replicate": line.get("devices"),
    }


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(number) in (int, float) for number in value)


def placed_run(run: FinishedRun, machines: ClusterSpec | None = None) -> PlacedRun:
    """Returns what was run, on which machines, in which layout; without ``machines`` on those of the catalogue.

    Raises:
        RecipeError: the catalogue has no such device.
    """
    if machines is None:
        device = find_device(run.device)
        name = run.device if device is None else device.name
        machines = cluster(f"{run.devices}x{name}", where=f"run {run.run}")
    return PlacedRun(
        run=RunSpec(model=counted(run.model), workload=run.workload, cluster=machines, stack=read_stack(OURS)),
        parallel=run.parallel,
    )


def runs_as_text(runs: Iterable[FinishedRun]) -> str:
    """Returns ``3 runs of the ledger, newest 2026-11-22``."""
    known = list(runs)
    if not known:
        return "no run of the ledger"
    newest = datetime.fromtimestamp(max(run.finished_unix_s for run in known), UTC).date().isoformat()
    return f"{len(known)} run{'s' if len(known) > 1 else ''} of the ledger, newest {newest}"
