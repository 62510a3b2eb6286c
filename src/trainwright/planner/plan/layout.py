"""Which layout a scenario is run with: the one that is asked for, or the fastest that fits among what is left open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast, get_args

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import unknown
from trainwright.core.units import format_bytes
from trainwright.hardware.catalogue.support import lacking_axes, plan_problems, stages_beside
from trainwright.planner.counts.images import batch_text
from trainwright.planner.counts.layouts import RECOMPUTES, ZERO_STAGES, FixedLayout, Layouts
from trainwright.planner.forecast.communication.collectives import Fabric
from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.plan.scenario import Scenario
from trainwright.planner.search.candidates import divisors, parallel_plan, stage_counts, tensor_counts
from trainwright.planner.search.layouts import compare, executed, longer, plainest, splits
from trainwright.spec.plan import Rejected
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import ContextWay, Offload, ParallelPlan, Recompute, Schedule

AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "micro_batch", "zero_stage", "virtual_stages")
WORDS: Mapping[str, tuple[str, ...]] = {
    "schedule": get_args(Schedule),
    "offload": get_args(Offload),
    "recompute": get_args(Recompute),
    "context": get_args(ContextWay),
    "sequence_parallel": ("true", "false"),
    "compile": ("true", "false"),
}
FLAGS = ("sequence_parallel", "compile")
BEST = 40
"""Layouts of a search whose memory and time are looked at in full."""
SHOWN = 4
"""Alternatives that are named beside the layout that was chosen."""

NAMED: Mapping[str, str] = {"gpipe": "GPipe", "zero_bubble": "zero-bubble", "dualpipe": "DualPipe"}
"""Schedules that a layout in words names; the others follow from its chunks."""
CONVNET = ("dp_replicate", "dp_shard", "micro_batch", "zero_stage", "compile", "recompute")
LARGEST_MICRO_BATCH = 64
"""Sequences that are tried at most where the micro batch is left open."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Choice:
    """A layout with its forecast, arrays of length one, and the best of those that were not chosen."""

    parallel: ParallelPlan
    recompute: Recompute
    forecast: Forecast
    rejected: tuple[Rejected, ...] = ()


def parse_layout(given: str | Mapping[str, object], *, field: str = "layout") -> FixedLayout:
    """Returns the parts of ``dp_shard=64,tp=8``, or of ``{"tp": 8}``, by name; ``auto`` fixes nothing.

    Raises:
        RecipeError: an unknown name, or a value that is none.
    """
    parts: dict[str, int | str | bool] = {}
    known = [*AXES, *WORDS]
    for pair in _pairs(given, field):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals and name in known:
            what, expected = "a part of a layout needs its value", f"{name}=VALUE"
            raise RecipeError(what, field=field, seen=repr(pair), expected=expected)
        if name not in known:
            longer = " or ".join(repr(each) for each in known if each.startswith(f"{name}_"))
            told, meant = unknown(name, known), f"did you mean {longer}?" if longer else None
            raise RecipeError("unknown part of a layout", field=field, **{**told, "fix": told["fix"] or meant})
        if name in parts:
            raise RecipeError("{name} is given twice", field=field, seen=given, name=name)
        parts[name] = _word(name, value, field) if name in WORDS else _degree(name, value, field)
    return cast("FixedLayout", parts)


def _pairs(given: str | Mapping[str, object], field: str) -> list[str]:
    if isinstance(given, Mapping):
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
        return [f"{name}={value}" for name, value in texts.items()]
    if not isinstance(given, str):
        raise RecipeError(
            "this is no layout", field=field, seen=repr(given), expected="tp=8, or a mapping of its parts"
        )
    return [] if given.strip() == "auto" else [pair for pair in map(str.strip, given.split(",")) if pair]


def _word(name: str, value: str, field: str) -> str | bool:
    if value not in WORDS[name]:
        raise RecipeError("unknown {name}", field=field, name=name, **unknown(value, WORDS[name]))
    return value == "true" if name in FLAGS else value


def _degree(name: str, value: str, field: str) -> int:
    number = int(value) if value.isdecimal() else -1
    if name == "zero_stage" and not 0 <= number <= 3:
        raise RecipeError("no stage of ZeRO", field=field, seen=f"zero_stage={value}", expected="0, 1, 2 or 3")
    if name != "zero_stage" and number < 1:
        raise RecipeError("not a number of ranks", field=field, seen=f"{name}={value}", expected="1 or more")
    return number


def wanted_layout(scenario: Scenario) -> FixedLayout:
    """Returns what a scenario fixes of its layout, or its software does by itself, recomputation included.

    Raises:
        RecipeError: its parts contradict each other.
    """
    wanted = scenario.usual | scenario.layout
    if wanted.get("virtual_stages", 1) > 1 and wanted.get("schedule", "interleaved") != "interleaved":
        what, seen = "several chunks of a stage are for the interleaved schedule", f"schedule={wanted['schedule']}"
        raise RecipeError(what, field="layout", seen=seen, expected="virtual_stages=1")
    if scenario.recompute is not None:
        wanted.setdefault("recompute", scenario.recompute)
    return wanted


def choose(scenario: Scenario) -> Choice:
    """Returns the layout of ``scenario``: what it fixes is kept, the rest is chosen for the shortest step that fits.

    Raises:
        RecipeError: nothing divides as asked; every reason, with the nearest layout that does.
    """
    wanted, run = wanted_layout(scenario), scenario.run
    if not run.model.is_divisible:
        _refuse_divisions(wanted)
    frugal, source, refuses = scenario.tunes, scenario.source, scenario.refuses
    compared = compare(run, [run.cluster.devices], layout=wanted, frugal=frugal, source=source, refuses=refuses)
    order = compared.order()
    if len(order):
        plain = order[np.argmin(splits(compared.layouts)[order])]
        places = np.asarray(list(dict.fromkeys((*order[:BEST], plain))))
        return best(scenario, compared.layouts.take(places))
    if not run.model.is_divisible:
        return best(scenario, _data_parallel(scenario, wanted))
    if wanted.keys() - scenario.usual.keys():
        return best(scenario, _filled(scenario, wanted))
    reasons = "; ".join(each.reason for each in compared.pruned) or "no candidate"
    fix = ", or ".join(_dividing(run)) or "change `batch_tokens`, `sequence_tokens` or the number of devices"
    raise RecipeError("no layout divides this run over the cluster", field="layout", seen=reasons, fix=fix)


def _dividing(run: RunSpec) -> Iterator[str]:
    """Yields the nearest batch that these devices divide, and the nearest number of devices that divide this batch."""
    devices, work, cluster = run.cluster.devices, run.workload, run.cluster
    sequences = work.batch_sequences
    multiples = [
        multiple
        for ranks in _data_ranks(run, devices)
        for multiple in (sequences // ranks * ranks, -(-sequences // ranks) * ranks)
        if multiple and multiple != sequences
    ]
    if multiples:
        near = min(multiples, key=lambda each: abs(each - sequences))
        asked = near * work.sequence_tokens // run.model.batch_unit_tokens
        unit = "" if run.model.sees_images else f" ({near:,} sequences)"
        yield f"change `batch_tokens` to {asked}{unit}"
    fewer, more = range(cluster.nodes - 1, 0, -1), range(cluster.nodes + 1, 2 * cluster.nodes)
    each = cluster.devices // cluster.nodes
    nearest = [
        next((nodes for nodes in side if any(sequences % r == 0 for r in _data_ranks(run, nodes * each))), None)
        for side in (fewer, more)
    ]
    known = [nodes for nodes in nearest if nodes is not None]
    if known:
        nodes = min(known, key=lambda one: abs(one - cluster.nodes))
        yield f"change `on` to {replace(cluster, nodes=nodes).name} ({nodes * each:,} devices)"


def _data_ranks(run: RunSpec, devices: int) -> set[int]:
    """Returns how many data-parallel ranks so many devices can be, beside tensor and pipeline parallelism."""
    lacks = lacking_axes(replace(run, tunes=False))
    domain = Fabric.of(run.cluster).domain
    tensors = [1] if "tp" in lacks else [each for each in tensor_counts(run.model) if each <= domain]
    stages = (1,) if "pp" in lacks else stage_counts(run.model)
    return {devices // (tp * pp) for tp in tensors for pp in stages if devices % (tp * pp) == 0}


def best(scenario: Scenario, layouts: Layouts, *, same_speed: float = 1.0) -> Choice:
    """Returns the plainest about as fast as any that fits; where none does, that whose least change would make it fit.

    Of those that are within ``same_speed`` of the fastest the one with the largest micro batch is taken.

    Raises:
        RecipeError: weights are updated in the backward pass, and all of ``layouts`` add gradients up.
    """
    layouts = _of_one_pass(scenario, layouts)
    every = forecast(scenario.run, layouts, scenario.source)
    fits, doubt = every.fits, every.memory.doubt(scenario.run.cluster.device)
    seconds = np.where(fits, every.step_s * longer(doubt, frugal=scenario.tunes), np.inf)
    order = np.lexsort((every.step_s, every.memory.needed_bytes, seconds))
    place = int(order[0])
    if fits[place]:
        if same_speed > 1:
            near = fits & (every.step_s <= same_speed * np.min(every.step_s[fits]))
            place = int(np.argmax(np.where(near, layouts.micro_batch, 0.0)))
        else:
            place = plainest(layouts, seconds, doubt, every.memory.needed_bytes if scenario.tunes else None)
        order = np.asarray([place, *(each for each in order if each != place)])
    parallel, recompute = parallel_plan(layouts, place)
    one = forecast(scenario.run, layouts.take(np.asarray([place])), scenario.source)
    rejected = _alternatives(every, order) if fits[place] else ()
    return Choice(parallel=parallel, recompute=recompute, forecast=one, rejected=rejected)


def _of_one_pass(scenario: Scenario, layouts: Layouts) -> Layouts:
    """Returns the layouts whose steps are one micro batch, where weights are updated in the backward pass; else all."""
    work = scenario.run.workload
    alone = layouts.micro_batches == 1
    if not work.update_in_backward or alone.all():
        return layouts
    if alone.any():
        return layouts.take(np.flatnonzero(alone))
    most = int(np.max(layouts.micro_batch * layouts.data_parallel)) * work.sequence_tokens
    least, model = f"at least {layouts.micro_batches.min():,.0f} micro batches", scenario.run.model
    raise RecipeError(
        "gradients that are gone after each update cannot be added up over micro batches",
        field="update_in_backward",
        seen=f"steps of {batch_text(model, work.batch_tokens)} in {least}",
        expected="steps of one micro batch",
        fix=f"change `batch_tokens` to {batch_text(model, most)} or less, or the micro batch of `layout`",
    )


def _refuse_divisions(wanted: FixedLayout) -> None:
    """Refuses what a convolutional network is not divided by.

    Raises:
        RecipeError: something else than replicas, ZeRO and a micro batch is wanted.
    """
    foreign = [f"{name}={value}" for name, value in wanted.items() if name not in CONVNET]
    if foreign or wanted.get("recompute", "none") != "none":
        seen, expected = ", ".join(foreign) or "recompute", f"parts of {', '.join(CONVNET)}"
        raise RecipeError("this layout is for transformers", field="layout", seen=seen, expected=expected)


def _data_parallel(scenario: Scenario, wanted: FixedLayout) -> Layouts:
    """Returns the layouts of a convolutional network that no search has, with a micro batch of any size.

    Raises:
        RecipeError: the batch has no such parts.
    """
    devices, work, stack = scenario.run.cluster.devices, scenario.run.workload, scenario.run.stack
    if work.batch_sequences % devices:
        what, seen = "a batch has as many images for each device", f"{work.batch_sequences:,} for {devices:,} devices"
        fix = ", or ".join(_dividing(scenario.run))
        raise RecipeError(what, field="batch_tokens", seen=seen, fix=fix)
    shares = devices > 1 and "dp_shard" not in lacking_axes(scenario.run)
    stages = [stage for stage in ZERO_STAGES[1:] if shares and stage in stack.runs.zero_stages]
    shapes = [ParallelPlan(dp_replicate=devices)]
    shapes += [ParallelPlan(dp_shard=devices, zero_stage=stage) for stage in stages]
    compiled = wanted.get("compile", stack.memory.kernels == "compiled")
    plans = [
        replace(shape, micro_batch_sequences=each, compile=compiled)
        for shape in shapes
        for each in divisors(work.batch_sequences // devices)
    ]
    fixed = {name: value for name, value in wanted.items() if name in AXES}
    fields = {"micro_batch": "micro_batch_sequences"}
    plans = [
        plan for plan in plans if all(getattr(plan, fields.get(name, name)) == value for name, value in fixed.items())
    ]
    if not plans:
        seen = ", ".join(f"{name}={value}" for name, value in fixed.items())
        each = ", ".join(map(str, divisors(work.batch_sequences // devices)))
        expected = f"all {devices} devices in dp_replicate or in dp_shard, micro_batch one of {each}"
        raise RecipeError("this layout cannot run", field="layout", seen=seen, expected=expected)
    return executed(Layouts.of(plans, ["none"] * len(plans), work), scenario.refuses)


def _alternatives(every: Forecast, order: np.ndarray) -> tuple[Rejected, ...]:
    """Returns the best layout of each other mesh, the least divided one among them, and what speaks against it."""
    others: dict[str, Rejected] = {}
    memory = every.memory.total_bytes(every.run.cluster.device)
    best = every.step_s[order[0]]
    chosen = mesh(*parallel_plan(every.layouts, int(order[0])))
    divided = splits(every.layouts)
    plain = int(order[np.argmin(divided[order])])
    places = [int(place) for place in order[1:]]
    if divided[plain] < divided[order[0]] and every.fits[plain]:
        places.insert(SHOWN - 1, plain)
    for place in places:
        name = mesh(*parallel_plan(every.layouts, place))
        if name == chosen or name in others:
            continue
        slower = every.step_s[place] / best - 1
        need = format_bytes(float(memory[place]))
        reason = f"{slower:.1%} slower" if slower >= 0 else f"{-slower:.1%} faster, but {need} may not fit"
        if slower < 0 and every.fits[place] and not every.uncertain[place]:
            simpler = splits(every.layouts)[place] > splits(every.layouts)[order[0]]
            passes = every.layouts.micro_batch[place] < every.layouts.micro_batch[order[0]]
            worse = "less plain" if simpler else "in more passes" if passes else f"needs {need}"
            reason = f"{-slower:.1%} faster, but {worse}"
        others[name] = Rejected(name=name, reason=reason)
        if len(others) == SHOWN:
            break
    return tuple(others.values())


def _filled(scenario: Scenario, wanted: FixedLayout) -> Layouts:
    """Returns the layout that ``wanted`` fixes; ranks that are left shard, or replicate; nothing else is split.

    Raises:
        RecipeError: every reason why it cannot run.
    """
    stack, devices = scenario.run.stack, scenario.run.cluster.devices
    virtual, tp = wanted.get("virtual_stages", 1), wanted.get("tp", 1)
    pp, cp = wanted.get("pp", 1), wanted.get("cp", 1)
    left = max(1, devices // (tp * pp * cp))
    shares = wanted.get("usual_zero_stage")
    if "dp_shard" in lacking_axes(scenario.run):
        shard = wanted.get("dp_shard", 1)
        replicate = wanted.get("dp_replicate", max(1, left // shard))
    else:
        replicate = wanted.get("dp_replicate", 1)
        shard = wanted.get("dp_shard", max(1, left // replicate))
    able = [each for each in stages_beside(stack.runs, wanted) if each <= (1 if pp > 1 else 3)]
    known = max(able, default=ZERO_STAGES[0])
    stage = known if shares is None else shares
    plan = ParallelPlan(
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=wanted.get("ep", 1),
        micro_batch_sequences=wanted.get("micro_batch", 1),
        virtual_stages=virtual,
        zero_stage=wanted.get("zero_stage", 0 if shard * cp == 1 else stage),
        sequence_parallel=wanted.get("sequence_parallel", stack.sequence_parallel),
        compile=wanted.get("compile", stack.memory.kernels == "compiled"),
        schedule=wanted.get("schedule", "interleaved" if virtual > 1 else "1f1b"),
        offload=wanted.get("offload", "none"),
        context=wanted.get("context", "gather"),
    )
    problems = plan.problems(scenario.run.transformer, scenario.run.workload, scenario.run.cluster)
    problems += plan_problems(stack, plan)
    if problems:
        raise RecipeError("this layout cannot run: " + "; ".join(problems), field="layout")
    recomputes = _recomputes(wanted, plan)
    plans = [plan]
    if "micro_batch" not in wanted:
        per_rank = scenario.run.workload.batch_sequences // (plan.dp_replicate * plan.dp_shard)
        sizes = [each for each in divisors(per_rank) if each <= LARGEST_MICRO_BATCH]
        usual = wanted.get("usual_micro_batch", 0)
        sizes = [usual] if usual and per_rank % usual == 0 else sizes
        sizes = [per_rank] if scenario.run.workload.update_in_backward else sizes
        plans = [replace(plan, micro_batch_sequences=each) for each in sizes]
    pairs = [(each, recompute) for each in plans for recompute in recomputes]
    every = Layouts.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], scenario.run.workload)
    return executed(every, scenario.refuses)


def _recomputes(wanted: FixedLayout, plan: ParallelPlan) -> tuple[Recompute, ...]:
    if wanted.get("recompute_shards"):
        return ("full",) if plan.sharing > 1 else ("none",)
    return (wanted["recompute"],) if "recompute" in wanted else RECOMPUTES


def mesh(parallel: ParallelPlan, recompute: Recompute) -> str:
    """Returns a layout in words: ``dp_shard 64, tp 8; micro batch 2, recompute full``."""
    how = [f"micro batch {parallel.micro_batch_sequences}"]
    if recompute != "none":
        how.append(f"recompute {recompute}")
    if parallel.offload != "none":
        how.append(f"offload {parallel.offload}")
    return f"{degrees(parallel)}; {', '.join(how)}"


def otherwise(before: ParallelPlan, after: ParallelPlan, *, named: str) -> str:
    """Returns how a changed run is divided, where that is not as before, and not what the change is ``named`` by."""
    divided = degrees(after)
    return "" if divided == degrees(before) or divided in named else divided


def degrees(parallel: ParallelPlan) -> str:
    """Returns how a layout divides a run in words: ``dp_shard 64, tp 8``."""
    sizes = {name: getattr(parallel, name) for name in AXES[:6]}
    found = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    if parallel.sharing > 1 and parallel.zero_stage != 3:
        found.append(f"ZeRO-{parallel.zero_stage}")
    if parallel.virtual_stages > 1:
        found.append(f"{parallel.virtual_stages} chunks a stage")
    if parallel.pp > 1 and parallel.schedule in NAMED:
        found.append(NAMED[parallel.schedule])
    if parallel.cp > 1 and parallel.context == "ulysses":
        found.append("Ulysses")
    return ", ".join(found) or "one device"
