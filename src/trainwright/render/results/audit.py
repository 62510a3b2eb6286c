"""The audit for people: the rows that matter, grouped, each with its difference in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainwright.core.frozen import dataclass
from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.planner.evidence.audit import SMALL, Audit, AuditRow
from trainwright.render.page import Page

AIMS = {"s": 0.15, "tokens/s": 0.15, "images/s": 0.15, "": 0.15, "bytes": 0.10}
"""The largest difference of a measurement from its prediction that is still called right, by unit."""

RUN, STEP, WHOLE_RUN = "run", "step", "whole run"
TITLES = {RUN: "the run", STEP: "one step", WHOLE_RUN: "beside the steps", "memory": "memory at the peak"}
QUANTITIES = {
    "data_wait": "waiting for data",
    "host_to_device": "copies to the device",
    "MFU": "model FLOPs utilisation",
    "workspace": "workspace (process and temporaries)",
    "reserved_unused": "reserved, not used",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLine:
    """One quantity as text. ``close`` says whether the prediction was right, None where no ratio says so.

    ``ranks`` are least, median and most over the ranks, where there are several.
    """

    quantity: str
    predicted: str
    measured: str
    difference: str
    close: bool | None
    ranks: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditGroup:
    """Lines about one whole: the run, one step, the memory."""

    title: str
    lines: tuple[AuditLine, ...]


def show(audit: Audit, page: Page) -> None:
    """Writes the verdict, then the rows that matter."""
    page.heading(verdict(audit))
    several = any(row.ranks for row in audit.rows)
    rows = [
        (group.title if index == 0 else "", line.quantity, line.predicted, line.measured, line.difference)
        + (line.ranks,) * several
        for group in groups(audit)
        for index, line in enumerate(group.lines)
    ]
    ranks = ("ranks: least, median, most",) * several
    page.table(("", "quantity", "predicted", "measured", "difference", *ranks), rows)


def verdict(audit: Audit) -> str:
    """Returns the sentence that answers whether the plan was right."""
    within = next((row.within for row in audit.rows if row.group == RUN and row.within is not None), None)
    time = _against(audit.seconds_ratio, more="% longer than predicted", less="% less time than predicted")
    memory = _against(audit.memory_ratio, more="% above its prediction", less="% below its prediction")
    bounds = {None: "", True: " (within the predicted range)", False: " (outside the predicted range)"}[within]
    return f"Training took {time}{bounds}; peak memory was {memory}."


def _against(ratio: float, *, more: str, less: str) -> str:
    percent = round(100 * (ratio - 1))
    if not percent:
        return "as predicted"
    return f"{abs(percent)} {more if percent > 0 else less}"


def groups(audit: Audit) -> tuple[AuditGroup, ...]:
    """Returns the rows by what they are parts of.

    The phases of the whole run that are those of its steps, and so repeat their ratios, are left out. Parts that are
    too small for a ratio stand together in the last line of their group.
    """
    in_steps = {row.quantity for row in audit.rows if row.group == STEP}
    by_group: dict[str, list[AuditRow]] = {}
    for row in audit.rows:
        by_group.setdefault(row.group, []).append(row)
    result = []
    for name, rows in by_group.items():
        shown = [row for row in rows if name != WHOLE_RUN or row.quantity not in in_steps]
        lines = tuple(_lines(shown, 0.0 if name == RUN else sum(row.measured for row in rows)))
        if lines:
            result.append(AuditGroup(title=TITLES.get(name, name), lines=lines))
    return tuple(result)


def difference(ratio: float) -> str:
    """Returns measured / predicted as a signed percentage: ``+8 %``; ``3.2×`` where it is more than double."""
    if not math.isfinite(ratio):
        return "unknown"
    if ratio > 2:
        return f"{ratio:.3g}×"
    percent = round(100 * (ratio - 1))
    return f"{percent:+d} %" if percent else "±0 %"


def quantity_title(name: str) -> str:
    """Returns the name of a phase, a class of memory or a rate in words."""
    return QUANTITIES.get(name, name.replace("_", " "))


def quantity_text(value: float, unit: str) -> str:
    """Returns seconds, bytes, counts and shares as people read them."""
    if unit == "s":
        return format_seconds(value)
    if unit == "bytes":
        return format_bytes(value)
    return format_count(round(value)) if unit else f"{100 * value:.3g} %"


def _lines(rows: Sequence[AuditRow], whole: float) -> Iterator[AuditLine]:
    """``whole`` is what the measured parts sum to: it says which of them are small."""
    small = [row for row in rows if row.ratio is None and row.measured < SMALL * whole]
    yield from (_line(row) for row in rows if row not in small)
    if small:
        yield AuditLine(
            quantity=", ".join(quantity_title(row.quantity) for row in small),
            predicted=quantity_text(sum(row.predicted for row in small), small[0].unit),
            measured=quantity_text(sum(row.measured for row in small), small[0].unit),
            difference="",
            close=None,
        )


def _line(row: AuditRow) -> AuditLine:
    """Returns a part without a ratio that is large enough to matter was not predicted at all."""
    return AuditLine(
        quantity=quantity_title(row.quantity),
        predicted=quantity_text(row.predicted, row.unit),
        measured=quantity_text(row.measured, row.unit),
        difference="unplanned" if row.ratio is None else difference(row.ratio),
        close=row.ratio is not None and abs(row.ratio - 1) <= AIMS[row.unit],
        ranks=", ".join(quantity_text(value, row.unit) for value in row.ranks or ()),
    )
