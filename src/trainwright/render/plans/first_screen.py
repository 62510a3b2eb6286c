"""What the first screen of a plan has beside its verdict: the memory as a bar, what matters most, what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.core.units import format_bytes, format_factor
from trainwright.hardware.catalogue.accelerators import NEVER_RUN_KEY
from trainwright.planner.cost.assumptions import OTHER_PROGRAMS, THIN
from trainwright.planner.explain.swing import largest
from trainwright.planner.forecast.switches import OFFLOADED_KEY
from trainwright.render.page import Page
from trainwright.render.plans.assumptions import assumption_row

if TYPE_CHECKING:
    from trainwright.spec.plan import Plan

WIDTH = 35
"""Letters of the bar: with its strokes and an indentation it stands in a terminal of 40 columns."""
LETTERS = {"workspace": "k", "reserved unused": "u"}
"""Of classes whose first letter another one has."""


def memory_bar(plan: Plan) -> str:
    """Returns ``|wwooaaaaaa......| weights 8 GiB, ...``: a letter for each part of the device's memory, dots for none.

    Where more is needed than is there, the bar is the need, and a second stroke in it says how far the memory reaches.
    """
    memory, there = plan.estimate.memory, plan.estimate.memory_available_bytes
    parts = [(name.replace("_", " "), size) for name, size in memory.as_dict().items() if size > 0]
    scale = WIDTH / max(there, memory.total_bytes)
    drawn, done = "", 0.0
    for name, size in parts:
        done += size
        drawn += LETTERS.get(name, name[0]) * (round(done * scale) - len(drawn))
    drawn = drawn.ljust(WIDTH, ".")
    if memory.total_bytes > there:
        reach = round(there * scale)
        drawn = f"{drawn[:reach]}|{drawn[reach:]}"
    named = sorted(parts, key=lambda part: -part[1])
    legend = ", ".join(f"{_marked(name)} {format_bytes(size)}" for name, size in named[:4])
    others = sum(size for _, size in named[4:])
    rest = f", others {format_bytes(others)}" if others else ""
    return f"|{drawn}| {legend}{rest}"


def _marked(name: str) -> str:
    """Returns a class with the letter that stands for it, where that is not its first."""
    letter = LETTERS.get(name)
    return name if letter is None else f"{name} ({letter})"


def show_first(page: Page, plan: Plan, *, following: str) -> None:
    """Shows what matters most to the answer, and the next command; all assumptions where everything is wanted."""
    entries = plan.estimate.assumptions
    page.line()
    if page.verbose:
        page.table(("rests on", "value", "origin", "source"), [assumption_row(entry) for entry in entries])
    else:
        rows = []
        for swing in largest(plan):
            name, value, origin, source = assumption_row(swing.assumption, whole=False)
            unknown = swing.factor == float("inf")
            moves = f"{swing.of} unknown" if unknown else f"{swing.of} x {format_factor(swing.factor)}"
            rows.append((name, value, origin, moves, source))
        page.table(("rests on most", "value", "origin", "moves", "source"), rows)
        for entry in entries:
            if entry.origin == "ledger":
                page.line(f"{entry.name}: {entry.source}")
            elif entry.key in (NEVER_RUN_KEY, OFFLOADED_KEY):
                page.line(f"{entry.name}: {entry.value}")
            elif entry.key == OTHER_PROGRAMS:
                page.line(f"{entry.name}: {entry.value} {entry.unit}; {entry.source}")
            elif entry.key == THIN:
                page.line(f"{entry.name}: {entry.value:,.0f}; {entry.source}")
    page.line()
    if following:
        page.line(f"next: {following}")
    if not page.verbose:
        more = f"all {len(entries)} assumptions"
        page.line(f"--verbose: memory by class, time by phase, needs, other layouts and {more}")
