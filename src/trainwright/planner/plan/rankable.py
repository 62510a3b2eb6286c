"""A run as it is ranked over many clusters: its defaults, batches that divide over many ranks, and the ranking."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwright.core.units import format_count
from trainwright.hardware.catalogue.energy import USD_PER_KWH, YEARS, owned_usd_per_hour
from trainwright.hardware.prices.clouds import cloud
from trainwright.planner.cost.batches import critical_batch, divisible, images_over
from trainwright.planner.cost.keeping import kept_of
from trainwright.planner.counts.images import batch_text
from trainwright.planner.plan.layout import wanted_layout
from trainwright.planner.plan.question import Question, check_precision
from trainwright.planner.plan.scenario import Scenario, scenario_of
from trainwright.planner.plan.sizes import MOST_TOKENS
from trainwright.planner.plan.usual import USUAL
from trainwright.planner.search.ranking import Option, Recommendation
from trainwright.planner.search.recommend import recommend
from trainwright.spec.device import ClusterSpec, PriceKind
from trainwright.spec.plan import Assumption, Origin

ANY_CLUSTER, ANY_NODE, ONE_DEVICE = "32x8xh100-sxm", "8xh100-sxm", "h100-sxm"
"""What defaults of a run, of a tuning, and of one on a device alone are resolved on where the user has nothing:
precision, and the batch."""


def rankable(question: Question, pool: Sequence[ClusterSpec]) -> Scenario:
    """Returns the run with all defaults, its batch rounded to what divides over many ranks and over ``pool``."""
    check_precision(question)
    question, left_out = _without_ramp(question)
    scenario = scenario_of(replace(question, precision=None), placed=False)
    scenario = replace(scenario, assumptions=(*scenario.assumptions, *left_out))
    if question.precision is not None:  # whatever has it: ``recommend`` asks each device
        kept = tuple(each for each in scenario.assumptions if each.key != "precision")
        workload = replace(scenario.run.workload, precision=question.precision)
        scenario = replace(scenario, run=replace(scenario.run, workload=workload), assumptions=kept)
    workload = scenario.run.workload
    sequences = _over(question, workload.batch_sequences, math.lcm(*(each.devices for each in pool)))
    if sequences == workload.batch_sequences:
        return scenario
    batch_tokens = sequences * workload.sequence_tokens
    model = scenario.run.model
    what = (
        "a power of two of them for each device" if _takes_usual_images(question) else "what most powers of two divide"
    )
    source = f"rounded from {batch_text(model, workload.batch_tokens)} to {what}"
    known = next((each for each in scenario.assumptions if each.key == "batch"), None)
    origin: Origin = "given" if known is None else known.origin
    source = source if known is None or not known.source else f"{known.source}; {source}"
    rounded = Assumption("batch", batch_tokens / model.batch_unit_tokens, model.batch_unit, origin, source, key="batch")
    steps = scenario_of(replace(question, precision=None, batch_tokens=batch_tokens), placed=False).run.workload.steps
    completed = replace(scenario.run, workload=replace(workload, batch_tokens=batch_tokens, steps=steps))
    others = (each for each in scenario.assumptions if each.key != "batch")
    return replace(scenario, run=completed, assumptions=(*others, rounded))


def _over(question: Question, sequences: int, devices: int) -> int:
    """Returns about so many sequences that divide over many ranks of so many devices."""
    return images_over(sequences, devices) if _takes_usual_images(question) else divisible(sequences, unit=devices)


def _takes_usual_images(question: Question) -> bool:
    """Returns whether nobody said how many images a batch has."""
    return question.model.sees_images and question.batch_tokens is None and question.workload is None


def _without_ramp(question: Question) -> tuple[Question, tuple[Assumption, ...]]:
    """Returns the question with all updates of the full batch, and that its recipe's smaller ones are left out."""
    asked = question.workload
    if asked is None or not asked.ramp:
        return question, ()
    source = "clusters are compared by the full batch; smaller ones make a run longer: see the plan of a way"
    note = Assumption("batch ramp", "left out", "", "default", source, key="batch_ramp")
    steps = max(1, -(-asked.total_tokens // asked.batch_tokens))
    return replace(question, workload=replace(asked, ramp=(), steps=steps)), (note,)


def ranked_ways(
    question: Question,
    pool: Sequence[ClusterSpec],
    *,
    have_usd_per_device_hour: float = 0.0,
    have_bought_usd: float = 0.0,
    have_years: float = YEARS,
    usd_per_kwh: float | None = None,
    price: Mapping[str, float] | None = None,
    **bounds: Any,
) -> tuple[Scenario, Recommendation]:
    """Returns a question's run, and all ways to do it on what is there and on what can be rented.

    Args:
        question: about the cluster ``defaults_on(pool)``.
        pool: what is there.
        have_usd_per_device_hour: what an hour of a device of it costs, beside what follows.
        have_bought_usd: what a device was bought for, with its share of the machine; idle ones are paid off as well.
        have_years: over how many years that is paid off.
        usd_per_kwh: of the power that they draw; None: ``USD_PER_KWH`` where they were bought, else nothing.
        price: dollars for an hour by device, in place of the lists'.
        bounds: as ``search.recommend.recommend`` has them.
    """
    scenario = _with_alone(rankable(question, pool), question)
    batches = _larger_batches(question, scenario)
    if batches:
        scenario = _with_batches(scenario, batches)
    power = usd_per_kwh if usd_per_kwh is not None else USD_PER_KWH if have_bought_usd else 0.0
    owned = {
        each.device.name: have_usd_per_device_hour
        + owned_usd_per_hour(each.device, bought_usd=have_bought_usd, years=have_years, usd_per_kwh=power)
        for each in pool
    }
    recommendation = recommend(
        scenario.run,
        precision=question.precision,
        have=pool,
        have_usd_per_device_hour=owned,
        have_idle_usd_per_device_hour={
            each.device.name: owned_usd_per_hour(
                each.device, bought_usd=have_bought_usd, years=have_years, usd_per_kwh=0.0
            )
            for each in pool
        },
        given=price,
        layout=wanted_layout(scenario),
        batches=batches,
        alone=None if scenario.alone is None else (scenario.alone.run, wanted_layout(scenario.alone)),
        frugal=scenario.tunes,
        data_bytes=kept_of(scenario.run, data_bytes=scenario.data_bytes, passes=scenario.passes).data_bytes,
        flops_per_s=scenario.flops_per_s,
        **bounds,
    )
    return scenario, recommendation


def _with_alone(scenario: Scenario, question: Question) -> Scenario:
    """Returns the scenario with what its software does by itself on one device alone, where it does more there."""
    habits = scenario.run.stack.usual.values()
    if not question.tunes or all(each.where != "alone" for each in habits):
        return scenario
    alone = scenario_of(replace(question, on=ONE_DEVICE, precision=None))
    known = {each.key for each in scenario.assumptions}
    more = [each for each in alone.assumptions if each.key.startswith(USUAL) and each.key not in known]
    if not more:
        return scenario
    workload = replace(alone.run.workload, precision=scenario.run.workload.precision)
    value = ", ".join(f"{each.name} {each.value}" for each in more)
    said = Assumption("on one device", value, "", "default", more[0].source, key=f"{USUAL}alone")
    alone = replace(alone, run=replace(alone.run, workload=workload))
    return replace(scenario, alone=alone, assumptions=(*scenario.assumptions, said))


def asked_for(question: Question, way: Option, *, price_kinds: Sequence[PriceKind] = ()) -> dict[str, object]:
    """Returns what a plan is to ask beside ``question`` for one way to do its run; None: nothing any more.

    Its cluster and what it is bought at, and where a plan would choose others the batch and the tokens.

    Args:
        question: the one that was ranked.
        way: one of its ways.
        price_kinds: those that were asked for.
    """
    asked: dict[str, object] = {"on": way.cluster}
    if way.price is not None and way.price.provider:
        asked |= {"clouds": cloud(way.provider).slug}
        asked |= {} if way.price_kind == question.price_kind else {"price_kind": way.price_kind}
    elif way.usd_per_device_hour is not None:
        asked["price"] = f"{way.usd_per_device_hour:.12g}"
    else:  # of none of these kinds a price is known, and it is counted as nothing that is taken back
        asked |= {"clouds": cloud(way.provider).slug} if way.provider else {}
        unusual = bool(price_kinds) and price_kinds[0] not in ("spot", question.price_kind)
        asked |= {"price_kind": price_kinds[0]} if unusual else {}
    placed = replace(question, on=way.cluster)
    if scenario_of(placed).run.workload.batch_tokens != way.batch_tokens:
        asked["batch_tokens"] = way.batch_tokens
    workload = scenario_of(replace(placed, batch_tokens=way.batch_tokens)).run.workload
    if workload.total_tokens != way.tokens:
        asked |= {"tokens": way.tokens, "examples": None, "epochs": None}
    return asked


def _larger_batches(question: Question, scenario: Scenario) -> tuple[int, ...]:
    """Returns the default batch times powers of two, up to the critical batch of a pretraining's tokens."""
    model, workload = scenario.run.model, scenario.run.workload
    asked = question.batch_tokens is not None or question.workload is not None
    if asked or question.tunes:
        return ()
    tokens = workload.total_tokens
    critical = critical_batch(model, tokens)
    most = min(critical.tokens, tokens) / workload.batch_tokens
    batches = (workload.batch_tokens << power for power in range(1, int(max(1.0, most)).bit_length()))
    # What a way trains has to be what a plan of it may.
    return tuple(each for each in batches if tokens * critical.dearer(each, than=workload.batch_tokens) <= MOST_TOKENS)


def _with_batches(scenario: Scenario, batches: Sequence[int]) -> Scenario:
    """Returns the scenario with an assumption that says which batches are tried."""
    model, least = scenario.run.model, scenario.run.workload.batch_tokens
    unit, one = model.batch_unit, model.batch_unit_tokens
    tokens = scenario.run.workload.total_tokens
    critical = critical_batch(model, tokens)
    dearer = critical.dearer(batches[-1], than=least)
    limit = "" if 2 * batches[-1] > critical.tokens else ", as far as the run is long enough"
    source = (
        f"in powers of two up to the critical batch of {format_count(critical.tokens / one)} ({critical.source}){limit}"
        f"; the largest takes {dearer - 1:.0%} more {unit} for the same loss"
    )
    sizes = " to ".join(format_count(each / one) for each in (least, batches[-1]))
    tried = Assumption("batch", sizes, unit, "default", source, key="batch")
    others = (each for each in scenario.assumptions if each.key != "batch")
    return replace(scenario, assumptions=(*others, tried))


def defaults_on(pool: Sequence[ClusterSpec], fields: Container[str] = ()) -> str:
    """Returns the cluster on which a run's defaults are resolved: the first of ``pool``, else a usual one.

    ``fields`` are those of its question that are given: they say whether a model is tuned.
    """
    tunes = "method" in fields or "task" in fields
    return pool[0].name if pool else ANY_NODE if tunes else ANY_CLUSTER
