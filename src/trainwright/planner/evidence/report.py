"""Predicts published rows and says how far off the planner is: by source, framework, device and model class.

Errors are of the predicted value against the measured one: ``|predicted / measured - 1|``. Bias is the median of
``predicted / measured - 1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path

import numpy as np

from trainwright.core.errors import DataError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB, format_bytes
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.published_run import Refused, Row, questions, share_of_peak
from trainwright.planner.evidence.rows import read_runs
from trainwright.planner.forecast.forecast import corrected, forecast
from trainwright.planner.forecast.memory.table import predict_memory
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.rates.learnt import Correction, Reference, correction
from trainwright.spec.plan import Interval

ROUNDED = 1.001 * GIB / 1e9
"""A measured GiB over the device's memory at most: data sheets say GB of what may be GiB, people round."""
BEATEN = 2.0
"""Times the catalogue's peak of a processor that a run may compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A row beside its prediction; ``tokens_per_s`` is per device.

    ``verdict`` is ``fits``, ``uncertain`` or ``does not fit``.
    """

    row: Row
    tokens_per_s: Interval
    memory_bytes: Interval
    verdict: str

    @property
    def speed_ratio(self) -> float | None:
        """Returns predicted over measured tokens per second."""
        return self.tokens_per_s.mid / measured if (measured := self.row.measured.tokens_per_s) else None

    @property
    def memory_ratio(self) -> float | None:
        """Returns predicted over measured peak memory."""
        return self.memory_bytes.mid / measured if (measured := self.row.measured.memory_bytes) else None


def judge(row: Row, learnt: Correction | None = None) -> Judged:
    """Returns the prediction of one row, with what was ``learnt`` of measured runs.

    Raises:
        RecipeError: the device has no rate for the row's precision, or no link that the layout needs.
    """
    run, layouts, stage = row.placed.run, Layouts.one(row.placed), row.measured.memory_stage
    worst_stage = there = forecast(run, layouts, CATALOGUE)
    if stage != "worst":
        memory = predict_memory(run, layouts, stage=stage)
        there = replace(worst_stage, memory=memory)
    if learnt is not None:
        worst_stage, there = (corrected(each, **asdict(learnt)) for each in (worst_stage, there))
    memory, worst = there.memory, worst_stage.memory
    if row.mean_tokens is not None:
        timed = forecast(row.timed.run, layouts, CATALOGUE)
        worst_stage = timed if learnt is None else corrected(timed, **asdict(learnt))
    tokens = row.timed.run.workload.step_tokens / float(layouts.devices[0])
    slow, mid, fast = (tokens / float(each[0]) for each in (worst_stage.high_s, worst_stage.step_s, worst_stage.low_s))
    kind = row.measured.memory_kind or run.stack.memory.reports
    device = run.cluster.device
    reported, (least, most) = memory.reported(kind, device), memory.interval(kind, device)
    fits = bool(worst.fits(device)[0])
    return Judged(
        row=row,
        tokens_per_s=Interval(low=slow, mid=mid, high=fast),
        memory_bytes=Interval(low=float(least[0]), mid=float(reported[0]), high=float(most[0])),
        verdict="uncertain" if worst.uncertain(device)[0] else "fits" if fits else "does not fit",
    )


def judge_all(rows: Iterable[Row]) -> tuple[list[Judged], list[Refused]]:
    """Returns the predictions of rows, and with its reason each row that cannot be predicted."""
    judged: list[Judged] = []
    refused: list[Refused] = []
    for row in rows:
        try:
            judged.append(judge(row))
        except TrainwrightError as error:
            refused.append(Refused(id=row.id, source=row.source, line=row.line, reason=str(error)))
    return judged, refused


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """Errors of many rows; ``in_range`` is the share of measured values inside the predicted range."""

    rows: int
    median: float
    mean: float
    p90: float
    bias: float
    in_range: float


def errors(ratios: Sequence[float], in_range: Sequence[bool]) -> Errors | None:
    """Returns the statistics of predicted over measured; None of no rows."""
    if not ratios:
        return None
    ratio = np.asarray(ratios)
    size, bias = np.abs(ratio - 1), float(np.median(ratio) - 1)
    median, mean, p90 = float(np.median(size)), float(size.mean()), float(np.quantile(size, 0.9))
    return Errors(rows=len(ratio), median=median, mean=mean, p90=p90, bias=bias, in_range=float(np.mean(in_range)))


def speed_errors(judged: Iterable[Judged]) -> Errors | None:
    """Returns the errors of tokens per second, over rows that were measured."""
    return _errors((each.tokens_per_s, each.row.measured.tokens_per_s) for each in judged)


def memory_errors(judged: Iterable[Judged]) -> Errors | None:
    """Returns the errors of peak memory, over rows that were measured."""
    return _errors((each.memory_bytes, each.row.measured.memory_bytes) for each in judged)


def _errors(rows: Iterable[tuple[Interval, float | None]]) -> Errors | None:
    pairs = [(span.mid / value, span.low <= value <= span.high) for span, value in rows if value]
    return errors([ratio for ratio, _ in pairs], [inside for _, inside in pairs])


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """How often "fits" was right; rows that ran fit, whatever they measured, and rows that ran out did not.

    ``right`` leaves out rows called uncertain. ``false_alarms`` is the share of rows that ran and were refused,
    ``recall`` the share of rows that ran out of memory and were refused; ``recall_with_uncertain`` adds those called
    uncertain.
    """

    ran: int
    ran_out: int
    uncertain: int
    right: float
    false_alarms: float
    recall: float
    recall_with_uncertain: float


def verdicts(judged: Iterable[Judged]) -> Verdicts | None:
    """Returns the statistics of the verdicts, over rows that report memory, or that they ran out of it."""
    known = [each for each in judged if each.row.measured.memory_bytes or each.row.measured.out_of_memory]
    out = Counter(each.verdict for each in known if each.row.measured.out_of_memory)
    ran = Counter(each.verdict for each in known if not each.row.measured.out_of_memory)
    sure = len(known) - out["uncertain"] - ran["uncertain"]
    if not known:
        return None
    return Verdicts(
        ran=ran.total(),
        ran_out=out.total(),
        uncertain=out["uncertain"] + ran["uncertain"],
        right=(out["does not fit"] + ran["fits"]) / sure if sure else 0.0,
        false_alarms=ran["does not fit"] / ran.total() if ran else 0.0,
        recall=out["does not fit"] / out.total() if out else 0.0,
        recall_with_uncertain=(out["does not fit"] + out["uncertain"]) / out.total() if out else 0.0,
    )


GROUPS: Mapping[str, Callable[[Judged], str]] = {
    "source": lambda each: each.row.source,
    "framework": lambda each: each.row.framework,
    "device": lambda each: each.row.device,
    "model class": lambda each: each.row.model_class,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupErrors:
    """One value of one grouping."""

    by: str
    name: str
    speed: Errors | None
    memory: Errors | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All of it; ``derived`` is throughput of rows that print a step time only.

    ``unmeasured`` rows are neither among ``rows`` nor predicted: there is nothing to hold a prediction against.
    """

    rows: int
    predicted: int
    refused: tuple[Refused, ...]
    unmeasured: tuple[Row, ...]
    speed: Errors | None
    derived: Errors | None
    memory: Errors | None
    verdicts: Verdicts | None
    groups: tuple[GroupErrors, ...]
    worst_speed: tuple[Judged, ...]
    worst_memory: tuple[Judged, ...]
    unused: Mapping[str, int] = field(default_factory=dict)
    """Settings in the notes of predicted rows that nobody reads, the most frequent first, and of how many rows."""

    @property
    def coverage(self) -> float:
        """Returns the share of rows that could be predicted."""
        return self.predicted / self.rows if self.rows else 0.0


def report(
    judged: Sequence[Judged], refused: Sequence[Refused], *, unmeasured: Sequence[Row] = (), worst: int = 10
) -> Report:
    """Returns all statistics. Derived rows stand apart from printed ones, in all but their own line."""
    printed = [each for each in judged if not each.row.measured.derived]
    groups = []
    for by, name in GROUPS.items():
        for value in sorted({name(each) for each in judged}):
            speed = speed_errors(each for each in printed if name(each) == value)
            memory = memory_errors(each for each in judged if name(each) == value)
            groups.append(GroupErrors(by=by, name=value, speed=speed, memory=memory))
    return Report(
        rows=len(judged) + len(refused),
        predicted=len(judged),
        refused=tuple(refused),
        unmeasured=tuple(unmeasured),
        speed=speed_errors(printed),
        derived=speed_errors(each for each in judged if each.row.measured.derived),
        memory=memory_errors(judged),
        verdicts=verdicts(judged),
        groups=tuple(groups),
        worst_speed=_worst(printed, lambda each: each.speed_ratio, worst),
        worst_memory=_worst(judged, lambda each: each.memory_ratio, worst),
        unused=dict(Counter(name for each in judged for name in each.row.unused).most_common()),
    )


def _worst(judged: Iterable[Judged], ratio: Callable[[Judged], float | None], count: int) -> tuple[Judged, ...]:
    def distance(each: Judged) -> float:
        return abs(float(np.log(ratio(each) or 1.0)))

    return tuple(sorted((each for each in judged if ratio(each)), key=distance, reverse=True)[:count])


def known_runs(path: Path) -> list[Reference]:
    """Returns the measured runs of a file, to learn from.

    Raises:
        RecipeError: there is no such file.
        DataError: it cannot be read, or a run in it cannot be predicted, or cannot be.
    """
    rows, refused = questions(read_runs(path))
    judged, more = judge_all(rows)
    for row in (*refused, *more):
        raise DataError("a measured run cannot be used", where=f"{path}, run {row.line}", seen=row.reason)
    for each in judged:
        _refuse_impossible(each, path)
    return references(judged)


def _refuse_impossible(each: Judged, path: Path) -> None:
    """Raises DataError for a run that computes or holds more than its device can: of all devices, or a wrong unit.

    A processor's peak is an estimate, which a run may beat.
    """
    share, device = share_of_peak(each.row), each.row.placed.run.cluster.device
    held = each.row.measured.memory_bytes
    if held is not None and not each.row.measured.out_of_memory and held > device.memory_bytes * ROUNDED:
        seen, expected = f"a peak of {format_bytes(held)}", f"at most the {format_bytes(device.memory_bytes)} of one"
        raise DataError(
            "no {device} holds so much",
            where=f"{path}, run {each.row.line}",
            seen=seen,
            expected=expected,
            device=device.name,
        )
    if share is not None and share > (BEATEN if device.kind == "cpu" else 1.0):
        seen = f"{each.row.measured.tokens_per_s:,.0f} tokens/s of a device, {share:.0%} of its peak"
        where, expected = f"{path}, run {each.row.line}", "tokens of one device"
        raise DataError("no device computes so much", where=where, seen=seen, expected=expected)


def references(judged: Iterable[Judged]) -> list[Reference]:
    """Returns measured runs as something to learn from."""

    def miss(ratio: float | None) -> float | None:
        return None if ratio is None else -float(np.log(ratio))

    return [
        Reference(placed=each.row.placed, log_speed=miss(each.speed_ratio), log_memory=miss(each.memory_ratio))
        for each in judged
    ]


def calibrated(judged: Iterable[Judged], known: Sequence[Reference]) -> list[Judged]:
    """Returns the same rows predicted with what ``known`` runs of the same device and stack say."""
    return [judge(each.row, correction(each.row.placed, known)) for each in judged]


def calibrated_by_first(judged: Sequence[Judged]) -> list[Judged]:
    """Returns every row but the first of its source, framework and device, predicted with that first one known."""
    others_judged: list[Judged] = []
    for key in dict.fromkeys(map(_origin, judged)):
        first, *others = [each for each in judged if _origin(each) == key]
        others_judged += calibrated(others, references([first]))
    return others_judged


def _origin(each: Judged) -> tuple[str, str, str]:
    return each.row.source, each.row.framework, each.row.device
