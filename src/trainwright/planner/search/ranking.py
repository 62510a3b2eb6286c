"""Ways to do a run in order: which meet the goals, which nothing betters, which three to look at first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainwright.core.frozen import dataclass
from trainwright.core.money import format_usd
from trainwright.core.units import format_factor, format_seconds
from trainwright.hardware.catalogue.nodes import written
from trainwright.hardware.prices.clouds import CONTRACT_S
from trainwright.planner.search.offers import OWN
from trainwright.spec.device import Price, PriceKind
from trainwright.spec.workload import ParallelPlan, Precision, Recompute

PATIENCE_S = 182 * 86400.0
"""The longest run that is looked at where no deadline is given: a Capacity Block of AWS is had for 182 days at most
(docs.aws.amazon.com, read 2026-02-08), and no published training took longer."""
PAID_LONGER = 1.05
"""Billed over run, beyond which answers say for how long the devices are paid."""
WASTE = 2.0
"""Contract over run beyond which nobody signs it, unless a budget or a deadline asks for that."""
DEARER = 1.25
"""What a faster way may cost, over the cheapest."""
WORTH_RENTING = 2.0
"""How much faster than what costs nothing a way is that is named beside it."""
AS_FAST = 1.05
"""Within so much of the fastest the cheapest is as good: predictions, and equal runs, differ by more."""
MATERIAL = 1.1
"""How many times less a way that may not fit has to take or to cost to be named beside those that surely fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One way to do the whole run.

    ``tokens`` are those that steps of ``batch_tokens`` take in all. ``usd`` is None where no price is known;
    ``front``: no other at a price without doubt is both faster and cheaper;
    ``unsure``: what is needed of the device's memory is so near to all of it that the prediction's error decides.
    """

    device: str
    devices: int
    nodes: int
    parallel: ParallelPlan
    recompute: Recompute
    precision: Precision
    batch_tokens: int
    tokens: int
    provider: str
    price_kind: PriceKind | None
    price: Price | None
    usd_per_device_hour: float | None
    seconds: float
    low_s: float
    high_s: float
    usd: float | None
    usd_low: float | None
    usd_high: float | None
    step_s: float
    mfu: float
    memory_bytes: float
    memory_available_bytes: float
    kwh: float | None
    interruptions: float
    checkpoint_interval_s: float
    checkpoints: float
    """How many there are, at its end included."""
    unsure: bool = False
    front: bool = False
    storage_usd: float | None = None
    egress_usd: float | None = None
    """Beside ``usd``, which is the rental alone: of data, checkpoints and weights (``cost.keeping``); None: unknown."""
    billed_s: float | None = None
    """For how long its devices are paid: a contract or a reserved term may be much longer than the run."""
    at_rate_s: float | None = None
    """How long it would take by 6 N D alone, if each device held a rate that is given."""

    @property
    def cluster(self) -> str:
        """Returns the cluster in one word: ``64x8xh100-sxm``."""
        return written(self.nodes, self.devices // self.nodes, self.device)

    @property
    def source(self) -> str:
        """Returns the provider and its kind of price: ``Nebius spot``."""
        kind = "" if self.price_kind is None else self.price_kind.replace("_", "-")
        return f"{self.provider} {kind}".strip()

    @property
    def is_paid_longer(self) -> bool:
        """Returns whether the devices are paid for much longer than the run takes."""
        return self.usd is not None and (self.billed_s or 0.0) > PAID_LONGER * self.seconds

    @property
    def wastes_contract(self) -> bool:
        """Returns whether most of a contract or a term is paid for nothing."""
        billed = self.billed_s or 0.0
        return self.usd is not None and billed >= CONTRACT_S and billed > WASTE * self.seconds

    @property
    def doubt(self) -> str:
        """Returns the reason why its price may not be had; empty where nothing speaks against it."""
        return "" if self.price is None else self.price.doubt


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A class of devices, layouts or ways to buy that was left out, how many of them, and why."""

    kind: Literal["device", "precision", "layout", "price", "goal"]
    name: str
    reason: str
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Goals:
    """What the run must not exceed; None: anything."""

    budget_usd: float | None = None
    deadline_s: float | None = None

    @property
    def are_open(self) -> bool:
        """Returns True where nothing is asked for: time and dollars are both to be weighed."""
        return self.budget_usd is None and self.deadline_s is None

    def met_by(self, option: Option) -> bool:
        """Returns True where ``option`` is in time and within the budget; without a price the latter is not known."""
        in_time = self.deadline_s is None or option.seconds <= self.deadline_s
        within = self.budget_usd is None or (option.usd is not None and option.usd <= self.budget_usd)
        return in_time and within

    def missed_by(self, option: Option) -> str:
        """Returns in words by how much ``option`` misses them; empty where it meets them, or no price is known."""
        asked = (("the deadline", option.seconds, self.deadline_s), ("the budget", option.usd, self.budget_usd))
        over = [f"{format_factor(got / most)} times {name}" for name, got, most in asked if got and most and got > most]
        return " and ".join(over)

    def order(self, option: Option) -> tuple[float, ...]:
        """Returns the key of the best first: the fastest where only a budget is given, else the cheapest.

        What has a doubtful price comes after all that has another, what has none last, by time. Of each of the three
        what surely fits comes first: a run that dies of memory costs more than its dollars.
        """
        unsure = float(option.unsure)
        if option.usd is None:
            return (2.0, unsure, option.seconds)
        doubtful = float(bool(option.doubt))
        if self.budget_usd is not None and self.deadline_s is None:
            return (doubtful, unsure, option.seconds, option.usd)
        return (doubtful, unsure, option.usd, option.seconds)

    def best_first(self, options: Iterable[Option]) -> list[Option]:
        """Returns the options by ``order``; where a budget alone is given the cheapest of the about fastest first."""
        found = sorted(options, key=self.order)
        if self.budget_usd is None or self.deadline_s is not None or not found:
            return found
        first = found[0]
        near = [each for each in found if each.seconds <= AS_FAST * first.seconds]
        sure = [each for each in near if (each.unsure, bool(each.doubt)) == (first.unsure, bool(first.doubt))]
        best = min(sure, key=_dollars)
        return [best, *(each for each in found if each is not best)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """``options`` are all ways that meet the goals, best first; ``closest`` the nearest where none surely does."""

    options: tuple[Option, ...]
    closest: tuple[Option, ...]
    refused: tuple[Refusal, ...]
    goals: Goals
    own: tuple[Option, ...] = ()
    """The best way on each kind of device that is there already, whether it meets the goals or not."""

    @property
    def front(self) -> tuple[Option, ...]:
        """Returns the Pareto front of time against dollars, fastest first."""
        options = [option for option in (*self.options, *self.closest) if option.front]
        return tuple(sorted(options, key=lambda option: option.seconds))

    @property
    def headlines(self) -> tuple[tuple[str, Option], ...]:
        """Returns the three ways to look at first, named; one that is two of them stands once, with both names.

        Prices in doubt are for none of them, unless all are, and neither is what may not fit. What would be cheaper or
        faster by ``MATERIAL`` if it did is named after them. A contract most of which is paid for nothing is no
        headline where no budget asks for it, unless it is the cheapest.
        """
        known = [option for option in self.options if option.usd is not None]
        known = [option for option in known if not option.doubt] or known
        if not known:
            return tuple(("fastest", option) for option in sorted(_surest(self.options), key=_seconds)[:1])
        surest, cheapest = _surest(known), min(_surest(known), key=_dollars)
        if self.goals.budget_usd is None and not cheapest.wastes_contract:
            known = [option for option in known if not option.wastes_contract]
            surest = _surest(known)
        fastest = min(surest, key=_seconds)
        near = [option for option in surest if _dollars(option)[0] <= DEARER * _dollars(cheapest)[0]]
        named = [("cheapest", cheapest), (f"fastest within {DEARER:.2f} times that", min(near, key=_seconds))]
        if not cheapest.usd:  # of what costs nothing no multiple says what it is worth to be faster
            rented = [option for option in surest if option.usd and option.seconds <= cheapest.seconds / WORTH_RENTING]
            name = f"cheapest that is {WORTH_RENTING:g} times as fast"
            named[1:] = [(name, min(rented, key=_dollars))] if rented else []
        named.append(("fastest", fastest))
        cheaper, faster = min(known, key=_dollars), min(known, key=_seconds)
        if MATERIAL * _dollars(cheaper)[0] < _dollars(cheapest)[0]:
            named.append(("cheaper if it fits", cheaper))
        if MATERIAL * faster.seconds < fastest.seconds:
            named.append(("faster if it fits", faster))
        names: dict[Option, list[str]] = {}
        for name, option in named:
            names.setdefault(option, []).append(name)
        return tuple((" and ".join(each), option) for option, each in names.items())

    @property
    def answers(self) -> tuple[tuple[str, Option], ...]:
        """Returns the ways that the answer names: with a goal the best before the headlines, else the closest."""
        if self.goals.are_open and self.options:
            return self.headlines
        best = self.options[:1]
        named = () if any(option.doubt for option in best) else self.headlines
        others = [(name, option) for name, option in named if option not in best]
        return (*(("best", option) for option in best), *others, *(("closest", option) for option in self.closest))


def _surest(options: Sequence[Option]) -> Sequence[Option]:
    """Returns those that surely fit; all, where none does."""
    return [option for option in options if not option.unsure] or options


def ranked(options: Iterable[Option], refused: Iterable[Refusal], goals: Goals) -> Recommendation:
    """Returns what meets the goals, best first, with the front of time against dollars marked.

    Without a deadline what takes longer than ``PATIENCE_S`` is left out, unless everything does.
    """
    found = list(options)
    usd = [np.nan if option.usd is None or option.doubt else option.usd for option in found]
    if goals.are_open and any(map(_soon, found)):
        usd = [each if _soon(option) else np.nan for option, each in zip(found, usd, strict=True)]
    front = pareto_front([option.seconds for option in found], usd)
    marked = [replace(each, front=True) if on else each for each, on in zip(found, front, strict=True)]
    met = goals.best_first(option for option in marked if goals.met_by(option))
    missed = _missed(marked, goals)
    if goals.deadline_s is None and met:
        soon = [option for option in met if _soon(option)]
        if soon and len(soon) < len(met):
            reason = f"longer than {format_seconds(PATIENCE_S)}; `deadline_s` says how long a run may take"
            missed.append(Refusal(kind="goal", name="too long", reason=reason, count=len(met) - len(soon)))
        met = soon or met
    near = () if met and (goals.are_open or not met[0].doubt) else closest(marked, goals)
    left_out = (*refused, *missed)
    return Recommendation(options=tuple(met), closest=near, refused=left_out, goals=goals, own=_own(marked, goals))


def _soon(option: Option) -> bool:
    """Returns True where a run is short enough to be rented, or runs on machines that are there anyway."""
    return option.seconds <= PATIENCE_S or option.provider == OWN


def pareto_front(seconds: ArrayLike, usd: ArrayLike) -> NDArray[np.bool_]:
    """Returns True [P] for points on the front: no other is as fast and as cheap, and better in one of the two.

    Of equal points the first is taken. A point without a price (NaN) or without an end (infinite) is never on it.
    """
    time, cost = np.asarray(seconds, dtype=np.float64), np.asarray(usd, dtype=np.float64)
    places = np.flatnonzero(np.isfinite(time) & np.isfinite(cost))
    ordered = places[np.lexsort((cost[places], time[places]))]
    front = np.zeros(len(time), dtype=np.bool_)
    if len(ordered):
        # Slower points are on the front only if they are cheaper than all faster ones.
        least = np.minimum.accumulate(cost[ordered])
        front[ordered] = np.concatenate([[True], cost[ordered][1:] < least[:-1]])
    return front


def _missed(options: Sequence[Option], goals: Goals) -> list[Refusal]:
    """Returns the numbers of ways that are too late or too dear."""
    refused = []
    seconds, usd = [each.seconds for each in options], [each.usd for each in options if each.usd is not None]
    for name, what, limit, values in (
        ("too late", "deadline", goals.deadline_s, seconds),
        ("too dear", "budget", goals.budget_usd, usd),
    ):
        over = [value / limit for value in values if value > limit] if limit is not None else []
        if over:
            reason = f"{format_factor(min(over))} to {format_factor(max(over))} times the {what}"
            refused.append(Refusal(kind="goal", name=name, reason=reason, count=len(over)))
    own = min((each for each in options if each.provider == OWN), key=_seconds, default=None)
    if own is not None and not goals.met_by(own):
        reason = f"at its fastest {format_seconds(own.seconds)}, {format_usd(own.usd or 0.0)}"
        refused.insert(0, Refusal(kind="goal", name=f"own {own.cluster}", reason=reason))
    return refused


def _own(options: Sequence[Option], goals: Goals) -> tuple[Option, ...]:
    """Returns the best of each kind of device that is there: of what meets the goals, else the fastest."""
    met: list[Option] = []
    missed: list[Option] = []
    there = [option for option in options if option.provider == OWN]
    for device in dict.fromkeys(option.device for option in there):
        every = [option for option in there if option.device == device]
        if meets := goals.best_first(option for option in every if not goals.missed_by(option)):
            met.append(meets[0])
        else:
            missed.append(min(every, key=_surely_soonest))
    return (*goals.best_first(met), *sorted(missed, key=_surely_soonest))


def _surely_soonest(option: Option) -> tuple[float, ...]:
    return (option.unsure, *_seconds(option))


def closest(options: Sequence[Option], goals: Goals) -> tuple[Option, ...]:
    """Returns the nearest ways where nothing meets the goals.

    That is the cheapest in time (else the fastest), and the fastest within the budget (else the cheapest), of what
    surely fits.
    """
    known = [option for option in options if option.usd is not None]
    priced = _surest([option for option in known if not option.doubt] or known)
    if not priced:
        return tuple(sorted(_surest(options), key=lambda option: option.seconds)[:1])
    in_time = [each for each in priced if goals.deadline_s is None or each.seconds <= goals.deadline_s]
    within = [each for each in priced if goals.budget_usd is None or (each.usd or 0.0) <= goals.budget_usd]
    cheapest = min(in_time, key=_dollars) if in_time else min(priced, key=_seconds)
    fastest = min(within, key=_seconds) if within else min(priced, key=_dollars)
    return (cheapest,) if cheapest == fastest else (cheapest, fastest)


def _seconds(option: Option) -> tuple[float, float]:
    return option.seconds, option.usd or 0.0


def _dollars(option: Option) -> tuple[float, float]:
    return option.usd or 0.0, option.seconds
