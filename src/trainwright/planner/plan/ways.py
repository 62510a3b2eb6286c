"""What would make a plan fit that does not, or may not, and one faster whose batch does not divide: changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from trainwright.core.errors import RecipeError
from trainwright.core.units import YEAR_S
from trainwright.planner.cost.batches import divisible, sequences_over, usual_batch
from trainwright.planner.counts.images import batch_text
from trainwright.planner.forecast.forecast import forecast
from trainwright.planner.forecast.played import played
from trainwright.planner.plan.cluster import Planned, planned
from trainwright.planner.plan.layout import choose, mesh, otherwise
from trainwright.planner.plan.scenario import Scenario
from trainwright.planner.plan.usual import alone_fields
from trainwright.planner.search.changes import BatchOver, Change, changes, surest
from trainwright.planner.search.fitting import with_room
from trainwright.planner.search.layouts import ranked
from trainwright.planner.search.variants import tuned_loss
from trainwright.spec.plan import Rejected
from trainwright.spec.run import RunSpec

Found = TypeVar("Found")
WORTH = 0.95
"""Of a batch's device-seconds for a token, those of another that is worth to be offered."""


def with_ways(made: Planned) -> Planned:
    """Returns a plan that does not fit with the changes that make it fit, another layout first, then the best.

    ``Change.order`` says which is the best. A plan that fits has the change to a batch that its devices divide, where
    that is faster.
    What is fixed of the layout and of recomputation is fixed no longer in any of them; what the software does by itself
    is fixed in all but another layout.
    """
    if made.plan.estimate.fits:
        return _with_surer(made) if made.plan.estimate.fit == "uncertain" else _with_even(made)
    scenario = made.scenario
    run = replace(scenario.run, workload=made.plan.workload)
    roomy = with_memory_enough(scenario)
    unit = _s_per_token(roomy)
    every = _looked_for(changes, scenario, run, unit)
    if scenario.tunes or (_is_guessed(scenario) and roomy.plan.estimate.seconds.mid > YEAR_S):
        # Nobody trains such a model anew there: adapters come first.
        every = tuple(sorted(every, key=lambda change: not change.trains_less))
    # What no field asks for comes last: nothing can be typed for it.
    every = tuple(_freed(scenario, each) for each in sorted(every, key=lambda change: not change.fields))
    if _is_guessed(scenario):
        every = tuple(replace(each, is_another_run=each.trains_less) for each in every)
    if (other := _laid_out(scenario, unit)) is not None:
        before = next((place for place, each in enumerate(every) if each.best.unsure), len(every))
        place = before if other.best.unsure else 0
        every = (*every[:place], other, *every[place:])
    unchanged = made.plan.parallel
    told = (each.told(otherwise(unchanged, each.best.parallel, named=each.name)) for each in every)
    ways = tuple(Rejected(name=change.name, reason=reason) for change, reason in zip(every, told, strict=True))
    return replace(made, plan=replace(made.plan, rejected=ways, roomy=roomy.plan), changes=every)


def with_memory_enough(scenario: Scenario) -> Planned:
    """Returns the plan that a scenario would have, were there memory for any layout: its time, and what it needs."""
    roomy = choose(replace(scenario, run=with_room(scenario.run)))
    there = forecast(scenario.run, roomy.forecast.layouts, scenario.source)
    return planned(scenario, replace(roomy, forecast=there))


def _batch_over(scenario: Scenario) -> BatchOver | None:
    """Returns the default batch on more devices, a multiple of these; None: somebody said it, or it stays the same."""
    said = ("batch", "default") not in {(each.key, each.origin) for each in scenario.assumptions}
    work, model = scenario.run.workload, scenario.run.model
    if said:
        return None

    def tokens(devices: int) -> int:
        if model.sees_images:
            return usual_batch(model, devices, tunes=scenario.tunes)[0] * work.sequence_tokens
        if scenario.tunes:
            return (work.batch_sequences + -work.batch_sequences % devices) * work.sequence_tokens
        whole = 1 << (work.batch_sequences - 1).bit_length()  # what was rounded down for fewer devices
        return sequences_over(whole, devices) * work.sequence_tokens

    return tokens


def _looked_for(find: Callable[..., Found], scenario: Scenario, run: RunSpec, unit: float) -> Found:
    """Returns the changes of a scenario's run that ``find`` finds, told over ``unit`` device-seconds for a token."""
    batch_over, frugal = _batch_over(scenario), scenario.tunes
    return find(run, unit=unit, source=scenario.source, usual=scenario.usual, frugal=frugal, batch_over=batch_over)


def _is_guessed(scenario: Scenario) -> bool:
    """Returns whether nobody said what a model is trained on from the start: adapters are then tuned on examples."""
    return not scenario.tunes and ("length", "default") in {(each.key, each.origin) for each in scenario.assumptions}


def _with_surer(made: Planned) -> Planned:
    """Returns a plan that may not fit with the best change after which it surely does, where there is one."""
    scenario, unit = made.scenario, _s_per_token(made)
    run = replace(scenario.run, workload=made.plan.workload)
    one = _looked_for(surest, scenario, run, unit)
    other = _laid_out(scenario, unit)
    found = [other] if other is not None and not other.best.unsure else []
    found += [] if one is None or (one.trains_less and not scenario.tunes) else [_freed(scenario, one)]
    return replace(made, changes=tuple(sorted(found, key=lambda change: change.order)[:1]))


def _with_even(made: Planned) -> Planned:
    """Returns a plan with a near batch that its devices divide, where those are faster with it."""
    scenario, run = made.scenario, made.scenario.run
    work, devices = run.workload, run.cluster.devices
    near = divisible(work.batch_sequences, unit=devices)
    if work.batch_sequences % devices == 0 or near % devices or work.ramp:
        return made
    batch = replace(work, batch_tokens=near * work.sequence_tokens)
    try:
        other = choose(replace(scenario, run=replace(run, workload=batch)))
    except RecipeError:  # what is fixed of the layout does not divide it
        return made
    (best,) = ranked(played(other.forecast), run.cluster.device)
    slowdown = best.step_s * devices / batch.step_tokens / _s_per_token(made)
    if best.unsure or not best.fits or slowdown > WORTH:
        return made
    change = Change(
        name=f"batches of {batch_text(run.model, batch.batch_tokens)}",
        slowdown=slowdown,
        counted=slowdown,
        devices=devices,
        best=best,
        fields={"batch_tokens": str(batch.batch_tokens)},
    )
    return replace(made, changes=(change,))


def _s_per_token(made: Planned) -> float:
    """Returns device-seconds for a token with the layout whose time the plan tells, without what runs taught."""
    run = replace(made.scenario.run, workload=made.plan.workload)
    seconds = float(played(forecast(run, made.choice.forecast.layouts, made.scenario.source)).step_s[0])
    return seconds * run.cluster.devices / run.workload.step_tokens


def _laid_out(scenario: Scenario, unit: float) -> Change | None:
    """Returns the change to another layout; None where nothing of it is fixed, or none fits."""
    if not (scenario.layout or scenario.usual) and scenario.recompute is None:
        return None
    other = choose(replace(scenario, layout={}, usual={}, recompute=None))
    if not bool(other.forecast.fits[0]):
        return None
    (best,), work = ranked(played(other.forecast), scenario.run.cluster.device), scenario.run.workload
    s_per_token = best.step_s * best.devices / work.step_tokens
    change = Change(
        name=f"layout auto: {mesh(other.parallel, other.recompute)}",
        slowdown=s_per_token / unit,
        counted=s_per_token / unit,
        devices=best.devices,
        best=best,
        is_layout=True,
    )
    return _freed(scenario, change)


def _freed(scenario: Scenario, change: Change) -> Change:
    """Returns a change that also asks for the layout and the recomputation of its own, where others were fixed.

    More devices do not get what the software does by itself on one alone: it is asked for. Adapters in place of a
    training from the start see what that would have seen, where somebody said what that is, with the loss of tuning.
    """
    alone = alone_fields(scenario.assumptions, scenario.run.workload) if "on" in change.fields else {}
    work = scenario.run.workload
    fields = {**({"layout": "auto"} if scenario.layout else {}), **alone, **change.fields}
    if change.trains_less and not _is_guessed(scenario):
        fields |= tuned_loss(scenario.run)
        fields |= {"further_layers": "0"} if scenario.run.transformer.further_layers else {}
    if change.trains_less and not (scenario.tunes or _is_guessed(scenario)):
        same = {"sequence_tokens": str(work.sequence_tokens), "batch_tokens": str(work.step_tokens)}
        fields |= {"packing": "on", **same}
    usual, best = scenario.usual, change.best
    freed = []
    if usual.get("offload", best.parallel.offload) != best.parallel.offload:
        freed.append(f"offload={best.parallel.offload}")
    if usual.get("usual_micro_batch", best.parallel.micro_batch_sequences) != best.parallel.micro_batch_sequences:
        freed.append(f"micro_batch={best.parallel.micro_batch_sequences}")
    if "usual_zero_stage" in usual and best.parallel.dp_replicate > 1:
        freed.append(f"dp_replicate={best.parallel.dp_replicate}")
    if (
        best.parallel.sharing > 1
        and usual.get("usual_zero_stage", best.parallel.zero_stage) != best.parallel.zero_stage
    ):
        freed.append(f"zero_stage={best.parallel.zero_stage}")
    if freed:
        fields["layout"] = ",".join(freed)
    shards = "full" if best.parallel.sharing > 1 else "none"
    habit = shards if usual.get("recompute_shards") else usual.get("recompute", best.recompute)
    if scenario.recompute is not None or best.recompute != habit:
        fields["recompute"] = best.recompute
    return replace(change, fields=fields)
