"""A recommendation: the answer, the tables that it was chosen from, time against dollars as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from trainwright.core.errors import RecipeError
from trainwright.core.money import format_hourly, format_usd
from trainwright.core.units import format_bytes, format_count, format_factor, format_seconds
from trainwright.planner.plan.assumptions import recommended
from trainwright.planner.plan.layout import mesh
from trainwright.planner.plan.usual import USUAL
from trainwright.planner.search.joined import of_networks
from trainwright.planner.search.offers import OWN
from trainwright.planner.search.ranking import pareto_front
from trainwright.planner.search.recommend import PROCESSORS
from trainwright.render.catalog.prices import old_prices
from trainwright.render.numbers import energy
from trainwright.render.page import Page, without_empty
from trainwright.render.pictures import ParetoPoint, pareto
from trainwright.render.plans.assumptions import assumption_row
from trainwright.render.plans.outlook import show_outlook
from trainwright.render.plans.rented import keeps_at_a_price, show_beside, show_doubtful, show_spot

if TYPE_CHECKING:
    from pathlib import Path

    from trainwright.planner.plan.scenario import Scenario
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.ranking import Option, Recommendation, Refusal
    from trainwright.spec.device import Price
    from trainwright.spec.workload import Workload

ROWS = 10
DOUBTFUL_ROWS = 3
UNPRICED_ROWS = 5
REFUSED_ROWS = 12
CHANGE_ROWS = 8
COLUMNS = ("", "run on", "from", "region", "price", "time", "cost", "MFU", "memory", "layout")
NOUNS = {"device": "device", "precision": "device", "layout": "layout", "price": "offer", "goal": "option"}
FIRST = ("network", "batch", "length", "sequence", "adapters", "availability", "software", "kept")
"""Assumptions that decide most of the answer, and that the first screen names."""
TOO_LARGE = ("states", "activations")
"""Rules about what does not fit, which say something about the run; others only keep the search short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What is shown beside a recommendation: ``mended`` says by cluster what would make the run fit there."""

    model_name: str
    judged: Pool | None
    mended: Mapping[str, tuple[Change, ...]]
    following: str
    """The command to type next."""


def show(page: Page, scenario: Scenario, recommendation: Recommendation, shown: Shown) -> None:
    """Shows the answer, the best of each device, and the next command; what it was chosen from where all is wanted."""
    every = (*recommendation.options, *recommendation.closest)
    looks = _Looks.of(every, scenario.run.workload)
    _show_answer(page, recommendation, together=shown.judged is not None and shown.judged.together)
    page.line(_what(scenario, looks, shown.model_name))
    if shown.judged is not None:
        _show_pool(page, shown.judged)
    if every:
        low, high = min(each.low_s / each.seconds for each in every), max(each.high_s / each.seconds for each in every)
        page.line(f"9 of 10 such runs take, and cost, between {low:.2f} and {high:.2f} times what stands here")
    show_outlook(page, recommendation, _in_short, unfit=shown.mended if every else ())
    sure = [option for option in _distinct(recommendation) if option.usd is not None]
    met = [option for option in sure if not option.doubt][:ROWS] if recommendation.options else []
    believed = met or list(recommendation.closest)
    _show_ways(page, believed, looks, title="best of each device and kind of price" if met else "closest")
    cheaper = [
        option for option in sure if option.doubt and _dollars(option) < min(map(_dollars, believed), default=inf)
    ][:DOUBTFUL_ROWS]
    headlines = [option for _, option in recommendation.headlines] if recommendation.goals.are_open else believed[:1]
    show_beside(page, believed if page.verbose else headlines)
    show_doubtful(page, cheaper)
    if page.verbose:
        show_spot(page, [each for each in (*believed, *cheaper) if each.price_kind == "spot"])
        front = recommendation.front
        _show_ways(page, front if len(front) > 1 else (), looks, title="time against cost: nothing betters these")
    unpriced = [option for option in _distinct(recommendation) if option.usd is None][:UNPRICED_ROWS]
    _show_ways(page, unpriced, looks, title="fastest without a known price")
    for name, rows in shown.mended.items():
        _show_changes(page, name, rows)
    _show_grounds(page, scenario, recommendation, keeps=any(map(keeps_at_a_price, headlines)))
    _note_marks(page, (*believed, *unpriced))
    _warn(page, [option.price for option in every if option.price is not None and option.price.provider])
    if shown.following:
        page.line()
        page.line(f"next: {shown.following}")


def _warn(page: Page, prices: Sequence[Price]) -> None:
    """Notes how many of the prices are old, or of an unknown date."""
    used = {(price.provider, price.instance, price.kind, price.region): price for price in prices}
    if (text := old_prices(list(used.values()))) is not None:
        page.note(text)


def _show_grounds(page: Page, scenario: Scenario, recommendation: Recommendation, *, keeps: bool) -> None:
    """Shows what was left out and what the answer rests on, of the latter what matters most unless all is wanted.

    ``keeps``: what is kept on storage has a price.
    """
    assumptions = [*of_networks(recommendation), *recommended(scenario)]
    if not page.verbose:
        first = [option for _, option in recommendation.headlines] + [*recommendation.options[:1]]
        keys = (*FIRST, *(["pipeline"] if any(each.parallel.pp > 1 for each in first) else []))
        shown = [each for each in assumptions if each.key in keys or each.key.startswith(USUAL)]
        assumptions = [each for each in shown if keeps or each.key != "kept"]
    refused = _refused(recommendation.refused, whole=page.verbose)
    if refused and (page.verbose or not recommendation.options):
        page.line()
        page.table(("left out", "how many", "because"), refused)
    elif refused:
        page.line()
        kinds: Counter[str] = Counter()
        for each in recommendation.refused:
            noun = "processor" if each.name == PROCESSORS else NOUNS[each.kind]
            kinds[noun] += each.count if each.kind != "layout" else 0
        named = [f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in kinds.items() if count]
        page.line(
            f"left out: {', '.join(named) or 'layouts alone'}; --verbose has the reasons and all that this rests on"
        )
    page.line()
    page.table(("rests on", "value", "origin", "source"), [assumption_row(each) for each in assumptions])


def _note_marks(page: Page, options: Sequence[Option]) -> None:
    """Notes what the marks of rows mean, of those that stand there."""
    marks = {
        "* on the front of time against cost": any(option.front for option in options),
        "? so near to the memory that the prediction's error decides": any(option.unsure for option in options),
    }
    if any(marks.values()):
        page.note("; ".join(meaning for meaning, stands in marks.items() if stands))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Looks:
    """In what the ways differ, so that rows name it."""

    precisions: tuple[str, ...]
    batches: tuple[int, ...]

    @classmethod
    def of(cls, every: Sequence[Option], workload: Workload) -> _Looks:
        counted = Counter(option.precision for option in every).most_common()
        precisions = tuple(precision for precision, _ in counted) or (workload.precision,)
        return cls(precisions=precisions, batches=tuple(sorted({option.batch_tokens for option in every})))


def _what(scenario: Scenario, looks: _Looks, model_name: str) -> str:
    """Returns the line that says what is trained."""
    work, unit = scenario.run.workload, scenario.run.model.unit
    each = unit if unit == "images" else f"sequences of {work.sequence_tokens:,}"
    if work.example_tokens is not None:
        each = f"examples of {work.example_tokens:,} in the mean, padded, at most {work.sequence_tokens:,}"
    optimizer = scenario.unmeasured.get("optimizer", work.optimizer)
    steps = f"{work.steps:,} steps of {work.batch_sequences:,} {each}"
    if len(looks.batches) > 1:
        steps = f"batches of {' or '.join(format_count(batch) for batch in looks.batches)}, {each}"
    others = " where no row says another" if len(looks.precisions) > 1 else ""
    return (
        f"{model_name}: {format_count(work.total_tokens)} {unit} in {steps}; {looks.precisions[0]}{others}, "
        f"{optimizer}, {scenario.run.stack.title}"
    )


def _show_answer(page: Page, recommendation: Recommendation, *, together: bool) -> None:
    """Shows the way to take; without a goal the cheapest, the fastest, and what lies between."""
    if not (recommendation.goals.are_open and recommendation.options):
        page.heading(_verdict(recommendation, together=together))
        return
    of_one = "of one kind of device, " if together else ""
    first, *others = recommendation.headlines
    page.heading(f"{of_one}{first[0]}: {_in_short(first[1])}")
    for name, option in others:
        page.line(f"{name}: {_in_short(option)}")


def _show_ways(page: Page, options: Sequence[Option], looks: _Looks, *, title: str) -> None:
    if options:
        page.line()
        page.table(*without_empty(COLUMNS, [_row(option, looks) for option in options]), title=title)


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
    looked_at = [each for each in refused if each.kind in ("device", "precision", "price") and each.name != PROCESSORS]
    devices = Counter(_briefly(each.reason) for each in looked_at)
    if list(devices) in ([], ["it does not fit"]):
        return "it fits on none of these devices"
    counted = [f"{reason} ({count} device{'' if count == 1 else 's'})" for reason, count in devices.most_common()]
    return f"none of these devices will do: {'; or '.join(counted if len(devices) > 1 else devices)}"


def _briefly(reason: str) -> str:
    """Returns a reason without its numbers: devices of one kind are few, of another many."""
    return "it does not fit" if reason.endswith("the memory") else reason.partition(" over up to ")[0]


def _in_short(option: Option) -> str:
    source = f" ({option.source})" if option.source else ""
    cost = "price unknown" if option.usd is None else _cost(option)
    drawn = "" if option.kwh is None else f", {energy(option.kwh)}"
    return f"{option.cluster}{source}, {format_seconds(option.seconds)}, {cost}{drawn}"


def _cost(option: Option) -> str:
    """Returns dollars; of a contract or a term for how long they are paid, which the hourly price does not say."""
    term = f" for {format_seconds(option.billed_s or 0.0)}" if option.is_paid_longer else ""
    return format_usd(option.usd or 0.0) + term


def _row(option: Option, looks: _Looks) -> tuple[str, ...]:
    precision = f"; {option.precision}" if option.precision != looks.precisions[0] else ""
    batch = f"; batch {format_count(option.batch_tokens)}" if len(looks.batches) > 1 else ""
    marks = ("*" if option.front else "") + ("?" if option.unsure else "")
    return (
        marks,
        option.cluster,
        option.source,
        "" if option.price is None else option.price.region,
        "" if option.price is None else _hourly(option.price),
        format_seconds(option.seconds),
        "" if option.usd is None else _cost(option),
        f"{option.mfu:.0%}",
        f"{format_bytes(option.memory_bytes)} of {format_bytes(option.memory_available_bytes)}",
        mesh(option.parallel, option.recompute) + batch + precision,
    )


def _hourly(price: Price) -> str:
    """Returns a price with its day, where it has one: a note says of how many nobody knows it."""
    return f"{format_hourly(price.usd_per_device_hour)}/h {price.date}".rstrip()


def _distinct(recommendation: Recommendation) -> list[Option]:
    """Returns the best ways, one for each device and kind of price."""
    best: dict[tuple[str, str, bool, bool], Option] = {}
    for option in recommendation.options or recommendation.closest:
        kind = (option.device, option.price_kind or "", option.provider == OWN, bool(option.doubt))
        best.setdefault(kind, option)
    return list(best.values())


def _dollars(option: Option) -> float:
    return inf if option.usd is None else option.usd


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
            f"{format_factor(each.slowdown)}x",
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
        rows.append((text, f"{count:,} {NOUNS[group[0].kind]}{'' if count == 1 else 's'}", group[0].reason))
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
    """Time against dollars as a picture; against device-hours, where nothing is paid or no price without doubt known.

    Raises:
        RecipeError: there is no way at all.
    """
    options = recommendation.options or recommendation.closest
    if not options:
        raise RecipeError("there is nothing to draw: no device will do", where="--draw")
    priced = [option for option in options if option.usd is not None and not option.doubt]
    in_usd = any(option.usd for option in priced)
    if in_usd:
        costs, front = [_dollars(option) for option in priced], [option.front for option in priced]
    else:
        priced = list({(option.device, option.devices): option for option in options}.values())
        costs = [option.seconds * option.devices / 3600 for option in priced]
        front = list(pareto_front([option.seconds for option in priced], costs))
    points = [
        ParetoPoint(name=f"{option.cluster} {option.source}".strip(), seconds=option.seconds, cost=cost, front=bool(on))
        for option, cost, on in zip(priced, costs, front, strict=True)
    ]
    pareto(
        points,
        path,
        in_usd=in_usd,
        deadline_s=recommendation.goals.deadline_s,
        budget_usd=recommendation.goals.budget_usd,
        title=f"{model_name}: time against {'cost' if in_usd else 'device-hours'}",
    )
