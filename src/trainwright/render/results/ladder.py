"""The ladder for people: a row for each technique, why each was kept or not, and the picture."""

from __future__ import annotations

import math
from pathlib import Path

from trainwright.core.units import format_bytes, format_count
from trainwright.planner.evidence.ladder import Comparison, Ladder, Measurement, PredictedStep, Rung
from trainwright.render.page import Page
from trainwright.render.pictures.waterfall import WaterfallStep, waterfall
from trainwright.spec.plan import Interval

COLUMNS = (
    "technique",
    "kept",
    "faster by",
    "predicted",
    "tokens/s",
    "predicted",
    "peak memory",
    "predicted",
    "loss differs by",
)

DRIFT = 0.1
"""Of the speed, between two measurements of one configuration: more is not the training's."""


def show(ladder: Ladder, page: Page) -> None:
    """Writes the verdict, the table, and what each technique brought and why."""
    page.heading(headline(ladder))
    rows = [_naive(ladder)] if ladder.first is not None else []
    page.table(COLUMNS, [*rows, *(_row(rung) for rung in ladder.rungs), *_beside_given(ladder.given)])
    page.line()
    for rung in ladder.rungs:
        page.line(f"{rung.technique} ({_changes(rung)}): {rung.why}.")
        page.line(f"  {_standing(rung)}: {rung.reason}")
    if ladder.given is not None:
        page.line(f"the recipe as given: {ladder.given.reason}")
    drifted = [rung.technique for rung in ladder.rungs if rung.drift > DRIFT]
    if drifted:
        page.note(
            f"this machine's speed changed by more than {DRIFT:.0%} while {', '.join(drifted)} was measured, which "
            "widens the interval: measure on a quiet machine"
        )


def headline(ladder: Ladder) -> str:
    """Returns what came of it: by the last comparison, where there is one, else what all kept techniques brought."""
    begin, given = f"{ladder.recipe} on {ladder.device}", ladder.given
    if given is not None and (given.chosen == "given" or given.gain is not None):
        return f"{begin}: {_compared(ladder, given)}"
    if not ladder.kept:
        return f"{begin}: no technique helps the naive configuration"
    names = ", ".join(rung.technique for rung in ladder.kept)
    gain, predicted = ladder.gain, ladder.predicted_gain
    return (
        f"{begin}: {gain.mid:.2f}x as fast as the naive configuration "
        f"({gain.low:.2f} to {gain.high:.2f}), predicted {predicted:.2f}x; kept: {names}"
    )


def _compared(ladder: Ladder, given: Comparison) -> str:
    """Returns what the last comparison found, and how fast the recipe that is taken is beside the naive one."""
    whole = "" if ladder.over_naive is None else f"; {ladder.over_naive:.2f}x the naive configuration's tokens/s"
    if given.gain is None or given.chosen == "given":
        return f"{given.reason}{whole}"
    predicted = "" if given.predicted_gain is None else f", predicted {given.predicted_gain:.2f}x"
    names = ", ".join(rung.technique for rung in ladder.kept)
    kept = f"; kept: {names}" if names else ""
    return f"tuned, {_interval(given.gain)} as fast as the recipe as given{predicted}{whole}{kept}"


def draw(ladder: Ladder, path: Path) -> None:
    """Draws the throughput from rung to rung; raises as ``waterfall``."""
    first = ladder.first
    base = 0.0 if first is None else first.tokens_per_s
    steps = [
        WaterfallStep(
            name=rung.technique,
            gain=rung.gain.mid,
            low=rung.gain.low,
            high=rung.gain.high,
            predicted=rung.predicted_gain or 1.0,
            kept=rung.kept,
        )
        for rung in ladder.rungs
        if rung.gain is not None
    ]
    last = "as given" if ladder.stays else "tuned"
    end = None if ladder.final is None else ladder.final.tokens_per_s
    factor = ladder.gain.mid if ladder.over_naive is None else ladder.over_naive
    whole = "stays as given, " if last == "as given" else ""
    title = f"{ladder.recipe}: {whole}{factor:.2f}x the naive configuration"
    waterfall(base, steps, path, title=title, last=last, end=end)


def _naive(ladder: Ladder) -> tuple[object, ...]:
    rung = next(each for each in ladder.rungs if each.before is not None)
    return _whole("naive", rung.before, rung.predicted_before)


def _beside_given(given: Comparison | None) -> list[tuple[object, ...]]:
    """Returns a row of the recipe as given and one of the tuned recipe; none of what was not measured."""
    if given is None or given.before is None:
        return []
    rows = [_whole("as given", given.before, given.predicted_before)]
    if given.gain is not None:
        kept, brought = "yes" if given.chosen == "tuned" else "no", _interval(given.gain)
        ratio = "" if given.predicted_gain is None else f"{given.predicted_gain:.2f}x"
        judged = kept, brought, ratio, _difference(given.loss_difference, given.tolerance)
        rows.append(_whole("tuned", given.tuned, given.predicted, judged))
    return rows


def _whole(
    name: str,
    measured: Measurement | None,
    predicted: PredictedStep | None,
    judged: tuple[str, str, str, str] = ("", "", "", ""),
) -> tuple[object, ...]:
    """Returns the row of a whole configuration; ``judged``: kept, faster by, as predicted, the loss's difference."""
    kept, gain, ratio, difference = judged
    if measured is None or predicted is None:
        return (name, kept, gain, *[""] * (len(COLUMNS) - 3))
    return (
        name,
        kept,
        gain,
        ratio,
        format_count(measured.tokens_per_s),
        format_count(predicted.tokens_per_s),
        format_bytes(measured.memory_bytes),
        format_bytes(predicted.memory_bytes),
        difference,
    )


def _row(rung: Rung) -> tuple[object, ...]:
    with_it, predicted = rung.with_it, rung.predicted
    if rung.gain is None or with_it is None or predicted is None:
        return (rung.technique, "not tried" if rung.before is None else "no", *[""] * (len(COLUMNS) - 2))
    return (
        rung.technique,
        "yes" if rung.kept else "no",
        _interval(rung.gain),
        f"{rung.predicted_gain:.2f}x",
        format_count(with_it.tokens_per_s),
        format_count(predicted.tokens_per_s),
        format_bytes(with_it.memory_bytes),
        format_bytes(predicted.memory_bytes),
        _difference(rung.loss_difference, rung.tolerance),
    )


def _standing(rung: Rung) -> str:
    if rung.before is None:
        return "not tried"
    return "kept" if rung.kept else "not kept"


def _interval(gain: Interval) -> str:
    return f"{gain.mid:.2f}x ({gain.low:.2f} to {gain.high:.2f})"


def _difference(difference: float | None, tolerance: float | None) -> str:
    if difference is None or tolerance is None:
        return ""
    shown = "0" if not difference else f"{difference:.0e}" if math.isfinite(difference) else "not a number"
    return f"{shown} of {tolerance:.0e}"


def _changes(rung: Rung) -> str:
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in rung.changes.items()}
    return " ".join(f"{key}={value}" for key, value in values.items()) or "not tried"
