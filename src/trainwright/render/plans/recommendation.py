"""A recommendation: the answer, the tables that it was chosen from, time against dollars as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.money import format_usd
from trainwright.core.units import format_seconds
from trainwright.hardware.catalogue.accelerators import NEVER_RUN_KEY
from trainwright.planner.plan.assumptions import recommended
from trainwright.planner.plan.usual import habits
from trainwright.planner.search.joined import of_answers
from trainwright.planner.search.offers import OWN
from trainwright.planner.search.ranking import pareto_front
from trainwright.planner.search.recommend import PROCESSORS
from trainwright.render.catalog.prices import old_prices
from trainwright.render.numbers import steps_of
from trainwright.render.page import Page
from trainwright.render.pictures import ParetoPoint, pareto
from trainwright.render.plans.assumptions import assumption_row, lengths_assumed
from trainwright.render.plans.outlook import Named, outlook
from trainwright.render.plans.rented import doubtful_lines, keeps_at_a_price, show_beside, show_doubtful, show_spot
from trainwright.render.plans.ways import Looks, show_changes, show_ways

if TYPE_CHECKING:
    from pathlib import Path

    from trainwright.planner.plan.scenario import Scenario
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.ranking import Option, Recommendation, Refusal
    from trainwright.spec.device import Price
    from trainwright.spec.plan import Assumption

SCREEN, LEAST_ROWS = 24, 4
"""Lines of the first screen, and the rows that it has however long the answer is."""
ROWS, SHORT_ROWS = 10, 8
DOUBTFUL_ROWS = 3
UNPRICED_ROWS, SHORT_UNPRICED_ROWS = 5, 3
REFUSED_ROWS = 12
ASSUMPTIONS = 3
"""That the first screen has."""
ALIKE = 1.15
"""By how much the ends of ranges may differ that are told as one."""
NOUNS = {"device": "device", "precision": "device", "layout": "layout", "price": "offer", "goal": "option"}
FIRST = (
    "generation",
    "network",
    "length",
    "software",
    "batch",
    "sequence",
    "adapters",
    "pipeline",
    "availability",
    "kept",
)
"""Keys of assumptions that decide most of the answer, what decides more before what decides less."""
TOO_LARGE = ("states", "activations")
"""Rules about what does not fit, which say something about the run; others only keep the search short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What is shown beside a recommendation.

    ``mended`` says by cluster what would make the run fit there, ``kinds`` how many kinds of devices there are, of
    which the best two are ``judged``.
    """

    model_name: str
    judged: Pool | None
    kinds: int
    mended: Mapping[str, tuple[Change, ...]]
    following: str
    """The command to type next."""


def show(page: Page, scenario: Scenario, recommendation: Recommendation, shown: Shown) -> None:
    """Shows the answer, the best of each device, and the next command; what it was chosen from where all is wanted."""
    every = (*recommendation.options, *recommendation.closest)
    looks = Looks.of(every, scenario.run)
    first, *answer = _answer(scenario, recommendation, shown, looks)
    page.heading(first)
    for line in answer:
        page.line(line)
    believed, doubtful, unpriced = _ways(recommendation)
    title = "closest" if recommendation.closest else "best of each device and kind of price"
    assumptions = [*of_answers(recommendation, scenario.run), *recommended(scenario)]
    rest = assumptions if page.verbose else _short_grounds(recommendation, assumptions)
    rows = [*believed, *unpriced]
    if page.verbose:
        _show_whole(page, recommendation, (believed, doubtful, unpriced), looks, title=title, judged=shown.judged)
    else:
        rows = _show_short(page, believed, unpriced, looks, title=title, lines=1 + len(answer) + len(rest))
    for name, changes in shown.mended.items():
        show_changes(page, name, changes)
    refused = _refused(recommendation.refused, whole=page.verbose)
    if refused and (page.verbose or not recommendation.options):
        page.line()
        page.table(("left out", "how many", "because"), refused)
    page.line()
    page.table(("rests on", "value", "origin", "source"), [assumption_row(each, whole=page.verbose) for each in rest])
    if not page.verbose:
        page.line(_left_out(recommendation, len(assumptions), counted=not refused or bool(recommendation.options)))
    _note_marks(page, rows)
    _warn(page, [option.price for option in every if option.price is not None and option.price.provider])
    if shown.following:
        page.line()
        page.line(f"next: {shown.following}")


def _answer(scenario: Scenario, recommendation: Recommendation, shown: Shown, looks: Looks) -> list[str]:
    """Returns the lines of the answer: the way to take, others beside it, what is trained, and how sure that is."""
    every = (*recommendation.options, *recommendation.closest)
    lines = _verdicts(recommendation, looks.told, together=shown.judged is not None and shown.judged.together)
    lines.append(_what(scenario, looks, shown.model_name))
    if by_default := habits(scenario.assumptions, scenario.run.stack):
        lines.append(by_default)
    if shown.judged is not None:
        more = f"; of the {shown.kinds} kinds that are there no more than two are joined" if shown.kinds > 2 else ""
        lines.append(f"{shown.judged.verdict}{more}")
    if every:
        lines.append(_range(recommendation.answers))
    lines += outlook(recommendation, looks.told, unfit=shown.mended if every else ())
    return lines + doubtful_lines(_ways(recommendation)[1][:1])


def _range(answers: Sequence[tuple[str, Option]]) -> str:
    """Returns the line that says how sure the ways of the answer are, those together that are about as sure."""
    groups: list[dict[str, tuple[float, float]]] = []
    for name, option in answers:
        ends = option.low_s / option.seconds, option.high_s / option.seconds
        group = next((each for each in groups if _about(next(iter(each.values())), ends)), None)
        if group is None:
            groups.append(group := {})
        group[name] = ends
    texts = []
    for group in groups:
        low, high = min(low for low, _ in group.values()), max(high for _, high in group.values())
        texts.append(f"between {low:.2f} and {high:.2f} times")
    others = [f"{' and '.join(group)}: {text}" for group, text in zip(groups[1:], texts[1:], strict=True)]
    return "; ".join((f"9 of 10 such runs take, and cost, {texts[0]} what stands here", *others))


def _about(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Returns whether both ends of two ranges are alike."""
    return all(max(ends) <= ALIKE * min(ends) for ends in zip(one, other, strict=True))


def _ways(recommendation: Recommendation) -> tuple[list[Option], list[Option], list[Option]]:
    """Returns what is believed, best first; what would be cheaper at doubtful prices; and what has no known price."""
    sure = [option for option in _distinct(recommendation) if option.usd is not None]
    met = [option for option in sure if not option.doubt][:ROWS] if recommendation.options else []
    believed = met or list(recommendation.closest)
    least = min(map(_dollars, believed), default=inf)
    doubtful = [option for option in sure if option.doubt and _dollars(option) < least][:DOUBTFUL_ROWS]
    unpriced = [option for option in _distinct(recommendation) if option.usd is None][:UNPRICED_ROWS]
    return believed, doubtful, unpriced


def _show_short(
    page: Page, believed: Sequence[Option], unpriced: Sequence[Option], looks: Looks, *, title: str, lines: int
) -> list[Option]:
    """Shows as many ways as the first screen has room for, beside so many other ``lines``; returns the rows."""
    # At the end: names of columns with a blank line, what was left out, a blank line, the next command. A table of ways
    # has a blank line, a title and names of columns.
    room = SCREEN - lines - 5
    least = min(len(believed), LEAST_ROWS)
    unknown = unpriced[: max(0, min(SHORT_UNPRICED_ROWS, room - 3 - least - 3))] if believed else unpriced
    alone = unpriced[: 1 - bool(unknown)]
    room -= 3 + (3 + len(unknown)) * bool(unknown) + len(alone)
    rows = [*believed[: min(SHORT_ROWS, max(LEAST_ROWS, room))]]
    show_ways(page, rows, looks, title=title)
    for option in alone:
        page.line(f"fastest without a known price: {looks.told(option)}")
    show_ways(page, unknown, looks, title="fastest without a known price")
    return [*rows, *unknown]


def _show_whole(
    page: Page,
    recommendation: Recommendation,
    ways: tuple[list[Option], list[Option], list[Option]],
    looks: Looks,
    *,
    title: str,
    judged: Pool | None,
) -> None:
    """Shows all that the answer was chosen from: every way, what it costs beside the rental, doubtful prices, spot."""
    believed, doubtful, unpriced = ways
    if judged is not None:
        _show_pool(page, judged)
    show_ways(page, believed, looks, title=title)
    headlines = [option for _, option in recommendation.headlines]
    show_beside(page, tuple(dict.fromkeys((*headlines, *believed))))
    show_doubtful(page, doubtful)
    show_spot(page, [each for each in (*believed, *doubtful) if each.price_kind == "spot"])
    front = recommendation.front
    show_ways(page, front if len(front) > 1 else (), looks, title="time against cost: nothing betters these")
    show_ways(page, unpriced, looks, title="fastest without a known price")


def _short_grounds(recommendation: Recommendation, assumptions: Sequence[Assumption]) -> list[Assumption]:
    """Returns what was never run on hardware, and the few assumptions that decide most of the first ways."""
    first = [option for _, option in recommendation.headlines] + [*recommendation.options[:1]]
    absent = set() if any(each.parallel.pp > 1 for each in first) else {"pipeline"}
    absent |= set() if any(map(keeps_at_a_price, first)) else {"kept"}
    shown: dict[str, Assumption] = {}
    for each in assumptions:
        if each.key in FIRST and each.key not in absent:
            shown.setdefault(each.key, each)
    never = [each for each in assumptions if each.key == NEVER_RUN_KEY]
    return [*never, *sorted(shown.values(), key=lambda each: FIRST.index(each.key))[:ASSUMPTIONS]]


def _left_out(recommendation: Recommendation, assumptions: int, *, counted: bool) -> str:
    """Returns one line: what was left out, where no table says so, and what shows the rest."""
    more = f"--verbose has the reasons, all rows and all {assumptions} assumptions"
    if not counted:
        return more
    kinds: Counter[str] = Counter()
    for each in recommendation.refused:
        noun = "processor" if each.name == PROCESSORS else NOUNS[each.kind]
        kinds[noun] += each.count if each.kind != "layout" else 0
    named = [f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in kinds.items() if count]
    return f"left out: {', '.join(named) or 'layouts alone'}; {more}"


def _warn(page: Page, prices: Sequence[Price]) -> None:
    """Notes how many of the prices are old, or of an unknown date."""
    used = {(price.provider, price.instance, price.kind, price.region): price for price in prices}
    if (text := old_prices(list(used.values()))) is not None:
        page.note(text)


def _note_marks(page: Page, options: Sequence[Option]) -> None:
    """Notes what the marks of rows mean, of those that stand there."""
    marks = {
        "* on the front of time against cost": any(option.front for option in options),
        "? so near to the memory that the prediction's error decides": any(option.unsure for option in options),
    }
    if any(marks.values()):
        page.note("; ".join(meaning for meaning, stands in marks.items() if stands))


def _what(scenario: Scenario, looks: Looks, model_name: str) -> str:
    """Returns the line that says what is trained."""
    work, unit = scenario.run.workload, scenario.run.model.batch_unit
    several, length = "s" * (work.batch_sequences != 1), f"{work.sequence_tokens:,}"
    each = f"image{several}" if unit == "images" else f"sequence{several} of {length}"
    if work.example_tokens is not None:
        assumed = lengths_assumed(scenario.assumptions)
        each = f"example{several} of {work.example_tokens:,} in the mean{assumed}, padded, at most {length}"
    optimizer = scenario.unmeasured.get("optimizer", work.optimizer)
    steps = f"{steps_of(work.steps)} {work.batch_sequences:,} {each}"
    if set(looks.batches) - {work.batch_tokens}:
        tokens = unit == "tokens" and work.example_tokens is None
        counted = looks.counted if tokens else lambda batch: f"{batch // work.sequence_tokens:,}"
        least, *_, most = (looks.batches[0], *looks.batches)
        between = "to" if len(looks.batches) > 2 else "or"
        sizes = counted(most) if least == most else f"{counted(least)} {between} {counted(most)}"
        steps = f"batches of {sizes}{', ' if tokens else ' '}{each}"
    others = " where no row says another" if len(looks.precisions) > 1 else ""
    return (
        f"{model_name}: {looks.counted(work.total_tokens)} {unit} in {steps}; {looks.precisions[0]}{others}, "
        f"{optimizer}, {scenario.run.stack.title}"
    )


def _verdicts(recommendation: Recommendation, told: Named, *, together: bool) -> list[str]:
    """Returns the way to take; then, or without a goal first, the cheapest, the fastest, and what lies between."""
    if not (recommendation.goals.are_open and recommendation.options):
        best = recommendation.options[:1]
        named = () if any(each.doubt for each in best) else recommendation.headlines
        others = [f"{name}: {told(option)}" for name, option in named if option not in best]
        return [_verdict(recommendation, told, together=together), *others]
    of_one = "of one kind of device, " if together else ""
    first, *others = (f"{name}: {told(option)}" for name, option in recommendation.headlines)
    return [f"{of_one}{first}", *others]


def _verdict(recommendation: Recommendation, told: Named, *, together: bool) -> str:
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
    nearest = "; or ".join(map(told, recommendation.closest))
    if recommendation.options:
        best = recommendation.options[0]
        if nearest and not recommendation.closest[0].doubt:
            return f"nothing surely meets {wanted}; at a doubtful price: {told(best)}; closest: {nearest}"
        for_what = f" for {wanted}" if wanted else ""
        return f"best{' of one kind of device' if together else ''}{for_what}: {told(best)}"
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
    rows = [(way.name, format_seconds(way.step_s), format_seconds(way.exchange_s)) for way in judged.ways]
    page.table(("way to use both", "a step", "of it between them"), rows)


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
    names = [f"{option.cluster} {option.source}".strip() for option in priced]
    points = [
        ParetoPoint(name=name, seconds=option.seconds, cost=cost, front=bool(on), unsure=option.unsure)
        for name, option, cost, on in zip(names, priced, costs, front, strict=True)
    ]
    pareto(
        points,
        path,
        in_usd=in_usd,
        deadline_s=recommendation.goals.deadline_s,
        budget_usd=recommendation.goals.budget_usd,
        title=f"{model_name}: time against {'cost' if in_usd else 'device-hours'}",
    )
