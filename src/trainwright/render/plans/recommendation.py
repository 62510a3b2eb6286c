"""A recommendation: the answer, the tables that it was chosen from, time against dollars as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from trainwright.core.errors import RecipeError
from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds
from trainwright.planner.plan.assumptions import recommended
from trainwright.planner.plan.layout import mesh
from trainwright.planner.search.offers import OWN
from trainwright.render.numbers import expected
from trainwright.render.page import Page
from trainwright.render.pictures import ParetoPoint, pareto
from trainwright.render.plans.assumptions import assumption_row

if TYPE_CHECKING:
    from pathlib import Path

    from trainwright.planner.plan.scenario import Scenario
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.recommend import Option, Recommendation, Refusal

ROWS = 10
DOUBTFUL_ROWS = 3
UNPRICED_ROWS = 5
REFUSED_ROWS = 12
CHANGE_ROWS = 8
COLUMNS = ("", "run on", "from", "time", "cost", "MFU", "memory", "layout")
TOO_LARGE = ("states", "activations")
"""Rules about what does not fit, which say something about the run; others only keep the search short."""


def show(
    page: Page,
    scenario: Scenario,
    recommendation: Recommendation,
    *,
    model_name: str,
    judged: Pool | None,
    mended: dict[str, tuple[Change, ...]],
) -> None:
    """Shows the answer in one line, then tables of what it was chosen from."""
    work = scenario.run.workload
    page.heading(_verdict(recommendation, together=judged is not None and judged.together))
    unit = scenario.run.model.unit
    each = unit if unit == "images" else f"sequences of {work.sequence_tokens:,}"
    every = (*recommendation.options, *recommendation.closest)
    precisions = list(dict.fromkeys(option.precision for option in every)) or [work.precision]
    optimizer = scenario.unmeasured.get("optimizer", work.optimizer)
    page.line(
        f"{model_name}: {format_count(work.total_tokens)} {unit} in {work.steps:,} steps of {work.batch_sequences:,} "
        f"{each}; {' or '.join(precisions)}, {optimizer}, {scenario.run.stack.title}"
    )
    if judged is not None:
        _show_pool(page, judged)
    if every:
        low, high = min(each.low_s / each.seconds for each in every), max(each.high_s / each.seconds for each in every)
        page.line(f"9 of 10 such runs take, and cost, between {low:.2f} and {high:.2f} times what stands here")
    sure = [option for option in _distinct(recommendation) if option.usd is not None]
    met = [option for option in sure if not option.doubt][:ROWS] if recommendation.options else []
    believed = met or recommendation.closest
    if believed:
        page.line()
        title = "best of each device and kind of price" if met else "closest"
        page.table(COLUMNS, [_row(option, precisions) for option in believed], title=title)
    cheaper = [
        option for option in sure if option.doubt and _dollars(option) < min(map(_dollars, believed), default=inf)
    ]
    _show_doubtful(page, cheaper[:DOUBTFUL_ROWS])
    _show_spot(page, [each for each in (*believed, *cheaper[:DOUBTFUL_ROWS]) if each.price_kind == "spot"])
    front = _thinned(recommendation.front, ROWS)
    if len(front) > 1:
        page.line()
        page.table(
            COLUMNS, [_row(option, precisions) for option in front], title="time against cost: nothing betters these"
        )
    unpriced = [option for option in _distinct(recommendation) if option.usd is None][:UNPRICED_ROWS]
    if unpriced:
        page.line()
        page.table(COLUMNS, [_row(option, precisions) for option in unpriced], title="fastest without a known price")
    for name, rows in mended.items():
        _show_changes(page, name, rows)
    refused = _refused(recommendation.refused, whole=page.verbose)
    if refused:
        page.line()
        page.table(("left out", "how many", "because"), refused)
    page.line()
    page.table(("rests on", "value", "origin", "source"), [assumption_row(each) for each in recommended(scenario)])
    page.note("* on the front of time against cost; ? so near to the memory that the prediction's error decides")


def _verdict(recommendation: Recommendation, *, together: bool) -> str:
    """Returns one line: what to take, or what comes closest; where two kinds do better together, of one kind."""
    goals = recommendation.goals
    wanted = " and ".join(
        filter(
            None,
            (
                "" if goals.budget_usd is None else f"a budget of {format_usd(goals.budget_usd)}",
                "" if goals.deadline_s is None else f"a deadline of {format_seconds(goals.deadline_s)}",
            ),
        )
    )
    nearest = "; or ".join(map(_in_short, recommendation.closest))
    if recommendation.options:
        best = recommendation.options[0]
        if nearest and not recommendation.closest[0].doubt:
            return f"nothing surely meets {wanted}; at a doubtful price: {_in_short(best)}; closest: {nearest}"
        for_what = f" for {wanted}" if wanted else ""
        return f"best{' of one kind of device' if together else ''}{for_what}: {_in_short(best)}"
    return f"nothing meets {wanted}; closest: {nearest}" if nearest else _no_way(recommendation.refused)


def _no_way(refused: Sequence[Refusal]) -> str:
    """Returns one line: why there is not a single way, by all reasons that left devices out."""
    texts = {"device": "it does not fit", "precision": "{reason}", "price": "{reason}"}
    reasons = dict.fromkeys(texts[each.kind].format(reason=each.reason) for each in refused if each.kind in texts)
    alone = list(reasons) in ([], [texts["device"]])
    return "it fits on none of these devices" if alone else f"none of these devices will do: {'; or '.join(reasons)}"


def _in_short(option: Option) -> str:
    source = f" ({option.source})" if option.source else ""
    cost = "price unknown" if option.usd is None else format_usd(option.usd)
    return f"{option.cluster}{source}, {format_seconds(option.seconds)}, {cost}"


def _row(option: Option, precisions: Sequence[str]) -> tuple[str, ...]:
    cost = "unknown" if option.usd is None else format_usd(option.usd)
    precision = f"; {option.precision}" if len(precisions) > 1 else ""
    marks = ("*" if option.front else "") + ("?" if option.unsure else "")
    return (
        marks,
        option.cluster,
        option.source or "unknown",
        format_seconds(option.seconds),
        cost,
        f"{option.mfu:.0%}",
        f"{format_bytes(option.memory_bytes)} of {format_bytes(option.memory_available_bytes)}",
        mesh(option.parallel, option.recompute) + precision,
    )


def _distinct(recommendation: Recommendation) -> list[Option]:
    """Returns the best ways, one for each device and kind of price."""
    best: dict[tuple[str, str, bool, bool], Option] = {}
    for option in recommendation.options or recommendation.closest:
        kind = (option.device, option.price_kind or "", option.provider == OWN, bool(option.doubt))
        best.setdefault(kind, option)
    return list(best.values())


def _dollars(option: Option) -> float:
    return inf if option.usd is None else option.usd


def _show_doubtful(page: Page, rows: Sequence[Option]) -> None:
    """Shows what would be cheaper at prices that may not be had, with what speaks against them."""
    if not rows:
        return
    page.line()
    page.table(
        ("run on", "from", "time", "cost", "price per hour", "doubtful because"),
        [
            (
                row.cluster,
                row.source,
                format_seconds(row.seconds),
                "" if row.usd is None else format_usd(row.usd),
                "" if row.price is None else f"${row.price.usd_per_device_hour:.2f}",
                row.doubt,
            )
            for row in rows
        ],
        title="cheaper, were these prices to be had",
    )


def _show_spot(page: Page, rows: Sequence[Option]) -> None:
    """Shows how often nodes are taken back, and the checkpoints that suit it."""
    if not rows:
        return
    page.line()
    columns = ("on spot nodes", "from", "interruptions to expect", "a checkpoint every")
    page.table(
        columns,
        [
            (row.cluster, row.provider, expected(row.interruptions), format_seconds(row.checkpoint_interval_s))
            for row in rows
        ],
    )


def _thinned(front: Sequence[Option], count: int) -> list[Option]:
    """At most ``count`` of the front, its ends among them."""
    if len(front) <= count:
        return list(front)
    return [front[round(place * (len(front) - 1) / (count - 1))] for place in range(count)]


def _show_pool(page: Page, judged: Pool) -> None:
    page.line()
    page.line(judged.verdict)
    rows = [(way.name, format_seconds(way.step_s), format_seconds(way.exchange_s)) for way in judged.ways]
    page.table(("way to use both", "a step", "of it between them"), rows)


def _show_changes(page: Page, name: str, rows: Sequence[Change]) -> None:
    page.line()
    if not rows:
        page.line(f"no change makes it fit on {name}")
        return
    table = [
        (
            f"{each.name}{' (adapters alone are trained)' if each.trains_less else ''}",
            f"{each.slowdown:.2f}x",
            mesh(each.best.parallel, each.best.recompute),
        )
        for each in rows[:CHANGE_ROWS]
    ]
    page.table(("change", "device-seconds a token", "layout"), table, title=f"what would make it fit on {name}")


def _refused(refused: Sequence[Refusal], *, whole: bool) -> list[tuple[str, ...]]:
    """Returns one row for each reason; what the search's rules spare in one row, unless the whole is wanted."""
    grouped: dict[tuple[str, str], list[Refusal]] = {}
    rules = [each for each in refused if each.kind == "layout" and each.name not in TOO_LARGE and not whole]
    for each in refused:
        if each not in rules:
            grouped.setdefault((each.kind, each.reason), []).append(each)
    rows = []
    for group in grouped.values():
        names = list(dict.fromkeys(each.name for each in group))
        text = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        count = sum(each.count for each in group)
        noun = {"device": "device", "precision": "device", "layout": "layout", "price": "offer", "goal": "option"}[
            group[0].kind
        ]
        rows.append((text, f"{count:,} {noun}{'' if count == 1 else 's'}", group[0].reason))
    devices = [row for row, each in zip(rows, grouped, strict=True) if each[0] == "device"]
    others = [row for row, each in zip(rows, grouped, strict=True) if each[0] != "device"]
    if len(devices) > REFUSED_ROWS and not whole:
        more = len(devices) - REFUSED_ROWS
        devices = [*devices[:REFUSED_ROWS], (f"{more} more", "", "see --verbose")]
    if rules:
        count = sum(each.count for each in rules)
        others.append(("other layouts", f"{count:,} layouts", f"by {len(rules)} rules of the search; see --verbose"))
    return [*devices, *others]


def draw(recommendation: Recommendation, path: Path, *, model_name: str) -> None:
    """Time against dollars, as a picture.

    Raises:
        RecipeError: nothing has a price, or none without doubt.
    """
    points = [
        ParetoPoint(
            name=_in_short(option).partition(",")[0], seconds=option.seconds, usd=option.usd, front=option.front
        )
        for option in recommendation.options or recommendation.closest
        if option.usd is not None and not option.doubt
    ]
    if not points:
        raise RecipeError("there is nothing to draw: no option has a price", where="--draw")
    pareto(
        points,
        path,
        deadline_s=recommendation.goals.deadline_s,
        budget_usd=recommendation.goals.budget_usd,
        title=f"{model_name}: time against cost",
    )
