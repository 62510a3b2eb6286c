"""Lines beside a recommendation's answer: what one has, how sure the deadline is, how often spot nodes stop, a rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trainwright.core.units import format_seconds
from trainwright.planner.search.chances import chance_in_time, surely_in_time
from trainwright.render.numbers import expected
from trainwright.render.plans.rented import checkpointed

if TYPE_CHECKING:
    from trainwright.planner.search.ranking import Option, Recommendation

Named = Callable[["Option"], str]
"""A way to do a run in a few words."""


def outlook(recommendation: Recommendation, named: Named, *, unfit: Iterable[str]) -> list[str]:
    """Returns a line for each cluster that is there, the odds of the deadline, interruptions, and times at a rate.

    ``unfit`` are clusters that are there and whose memory is too small.
    """
    goals, options = recommendation.goals, recommendation.options
    answers = [option for _, option in recommendation.headlines] if goals.are_open else list(options[:1])
    answers = answers or list(recommendation.closest)
    lines = [
        f"{'also' if place else 'best use of what is'} there: {named(option)}{_why_not(recommendation, option)}"
        for place, option in enumerate(recommendation.own)
        if option not in answers
    ]
    lines += [f"what is there: {name}: the run does not fit" for name in unfit]
    if goals.deadline_s is not None and options:
        lines.append(_odds(options, goals.deadline_s, named))
    return [*lines, *dict.fromkeys((*_stops(answers), *_at_rate(answers)))]


def _why_not(recommendation: Recommendation, option: Option) -> str:
    missed = recommendation.goals.missed_by(option)
    return f": {missed}" if missed else ""


def _odds(options: Sequence[Option], deadline_s: float, named: Named) -> str:
    """Returns one line: the chance that the first of ``options`` is in time, and which one surely is."""
    first = options[0]
    if first.high_s <= deadline_s:
        return f"surely in time: at most {format_seconds(first.high_s)} in 19 of 20 such runs"
    tenths = round(10 * chance_in_time(first, deadline_s))
    odds = "an even chance" if tenths == 5 else f"a chance of {tenths} in 10"
    sure = surely_in_time(options, deadline_s)
    other = "nothing surely is" if sure is None else f"surely in time (19 of 20): {named(sure)}"
    return f"about {odds} to be in time; {other}"


def _stops(options: Iterable[Option]) -> Iterable[str]:
    for each in options:
        if each.price_kind == "spot":
            name, when = f"{each.cluster} ({each.source})", checkpointed(each)
            yield f"{name}: interruptions to expect {expected(each.interruptions)}, a checkpoint {when}"


def _at_rate(options: Iterable[Option]) -> Iterable[str]:
    for each in options:
        if each.at_rate_s is not None:
            held = f"{each.cluster} at the rate that is given, if each device held it"
            yield f"{held}: {format_seconds(each.at_rate_s)}; 6 x parameters x tokens, nothing else"
