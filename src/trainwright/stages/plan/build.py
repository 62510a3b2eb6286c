"""From a recipe and a machine's record to a plan: every ``auto`` resolved, with what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.core.units import format_bytes, format_seconds
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.hardware.catalogue.devices import device as catalogue_device
from trainwright.hardware.catalogue.stacks import OURS, read_stack
from trainwright.hardware.catalogue.support import QUANTISING_KINDS
from trainwright.hardware.machine.record import Machine
from trainwright.hardware.prices.price_list import price_list
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.evidence.finished import Ledger
from trainwright.planner.evidence.references import references_of
from trainwright.planner.forecast.forecast import forecast, step_s
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.estimated_facts import asked_vocabulary, dataset_assumptions, deviation
from trainwright.planner.plan.layout import best, mesh
from trainwright.planner.plan.machine import (
    COMPILE_WORTH_S,
    SAME_SPEED,
    Here,
    range_of,
)
from trainwright.planner.plan.rental import rental
from trainwright.planner.plan.scenario import Scenario, of_kernels
from trainwright.planner.plan.sizes import of_ramp
from trainwright.planner.plan.workload import resolve
from trainwright.planner.rates.learnt import machine_priors
from trainwright.planner.search.layouts import Refuses
from trainwright.spec.convnet import AnyModel, ConvNetSpec, counted
from trainwright.spec.device import DeviceSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import (
    INTERVAL,
    Assumption,
    Estimate,
    Interval,
    Plan,
    Rejected,
    Rental,
    of_frozen,
    of_unmeasured,
)
from trainwright.spec.recipe import Recipe
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import DatasetFacts, KernelChoice, ParallelPlan, Precision, Workload
from trainwright.stages.plan.fit_memory import fitted, within
from trainwright.stages.plan.host_memory import with_bus
from trainwright.stages.plan.kernels import executable
from trainwright.stages.plan.precision import at_precision, check_frozen
from trainwright.stages.plan.ranks import here_for, kept, layout_of
from trainwright.stages.plan.rates import rate_assumptions
from trainwright.stages.plan.teacher import of_teacher

ONE_DEVICE = ParallelPlan()
CHANGES = 4
"""That are named where a run does not fit, the mildest first."""
REFUSES = "trainwright.stages.train.layout:refuses"
"""What executes the plan says what it does not: by name, as stages do not import each other."""


def build_plan(recipe: Recipe, machine: Machine, facts: DatasetFacts, ledger: Ledger | None = None) -> Plan:
    """Returns the plan that the trainer executes, corrected by the ledger's runs of this machine.

    What runs say scales the estimate; precision and compilation are chosen without them, and precision without the
    dataset too, so that what is trained does not depend on what was made before.

    Args:
        recipe: the run.
        machine: the doctor's record.
        facts: of the dataset, counted or estimated.
        ledger: finished runs; None: there are none.

    Raises:
        RecipeError: an impossible workload, an unknown device to price, or a length that depends on the dataset.
        MachineError: CUDA is asked for and not there, or the package of a kernel.
    """
    rented = [catalogue_device(name, where="plan.rent_on") for name in recipe.plan.rent_on]
    model = counted(recipe.model_spec(vocabulary=facts.vocabulary))
    how = recipe.train.exec
    here = within(with_bus(here_for(how, machine), recipe.train), how.fit_memory)
    precision = _precision(recipe, facts, here)
    workload, here = resolve(recipe, facts, precision=precision), at_precision(here, precision)
    problems = workload.problems(model)
    if problems:
        raise RecipeError("; ".join(problems), where="train")
    run = _run(model, workload, here, how.kernels)
    compiled = _compiles(recipe, run, here)
    learnt = references_of(ledger or Ledger(), run.cluster, run.stack, recipe.unmeasured, here=here)
    scenario = Scenario(
        run=run,
        layout={},
        recompute=workload.recompute,
        price=None,
        settings=here.settings,
        assumptions=(
            *here.assumptions(run, compiled=compiled),
            *dataset_assumptions(recipe, facts),
            *_stand_ins(recipe, workload),
            *of_kernels(how.kernels),
        ),
        references=learnt.references,
        references_from=learnt.text,
        left_out=learnt.left_out,
        unmeasured=recipe.unmeasured,
        priors=machine_priors(here.source.spread(run)),
        source=here.source,
        numbers=here.numbers(model.blocks, compiled=compiled),
        on_this_machine=True,
    )
    scenario, plan = _within_memory(recipe, scenario, compiled=compiled)
    if not plan.estimate.fits:
        plan = replace(plan, rejected=_changes_that_fit(recipe, scenario, plan.parallel))
    length = deviation(recipe, facts)
    deterministic = how.is_deterministic(here.cluster.device.kind)
    return replace(
        executable(plan, how.kernels),
        parallel=replace(plan.parallel, threads=here.threads, deterministic=deterministic),
        estimate=_with_range(plan.estimate, learnt=bool(learnt.references), length=length),
        rentals=tuple(_rental_with_range(each, length) for each in _rentals(recipe, facts, model, workload, rented)),
    )


def _rentals(
    recipe: Recipe, facts: DatasetFacts, model: AnyModel, workload: Workload, rented: Sequence[DeviceSpec]
) -> Iterator[Rental]:
    """Yields the run on each rented device, in its own precision where the recipe leaves it open."""

    def at(precision: Precision) -> Workload:
        return resolve(recipe, facts, precision=precision)

    is_open, prices = recipe.train.precision == "auto", price_list()
    yield from (rental(model, workload, device, prices, at=at if is_open else None) for device in rented)


def _within_memory(recipe: Recipe, scenario: Scenario, *, compiled: bool) -> tuple[Scenario, Plan]:
    """Returns the plan, of the fastest way that fits the memory where the recipe limits it, and what it is of."""
    if recipe.train.exec.fit_memory is None:
        return scenario, _laid_out(recipe, scenario, compiled=compiled)

    def of(work: Workload) -> Scenario:
        return replace(scenario, run=replace(scenario.run, workload=work), recompute=work.recompute)

    def executes(work: Workload, parallel: ParallelPlan) -> bool:
        return not _refuses(recipe, of(work).run)(parallel, work.recompute)

    def plan_of(work: Workload) -> Plan:
        return _laid_out(recipe, of(work), compiled=compiled)

    chosen, plan = fitted(recipe.train, scenario.run.workload, plan_of, executes)
    return of(chosen), plan


def _refuses(recipe: Recipe, run: RunSpec) -> Refuses:
    """Returns what says why the trainer does not execute a layout for this recipe."""
    found: Refuses = load(REFUSES, kind="layout")(recipe, run.model, run.workload)
    return found


def _laid_out(recipe: Recipe, scenario: Scenario, *, compiled: bool) -> Plan:
    """Returns the plan in the layout that the recipe asks for, or in the planner's."""
    how, run = recipe.train.exec, scenario.run
    parallel = layout_of(how, run)
    if parallel is None:
        chosen = replace(scenario, layout=kept(how, compiled=compiled), refuses=_refuses(recipe, run))
        return planned(chosen).plan
    return _fitting(scenario, micro_batches(recipe, run.workload, parallel), replace(parallel, compile=compiled))


def micro_batches(recipe: Recipe, workload: Workload, parallel: ParallelPlan = ONE_DEVICE) -> tuple[int, ...]:
    """Returns the sequences of a forward pass that a plan chooses from: the recipe's, or all that divide each batch."""
    wanted = recipe.train.exec.micro_batch
    if recipe.model.convolutions is not None:
        return (workload.batch_sequences,)  # what batch norms see
    places = range(parallel.dp_replicate * parallel.dp_shard)
    sizes = [size // workload.sequence_tokens for size in workload.sizes.different]
    each = [math.gcd(*(len(parallel.rows(size, place)) for place in places)) for size in sizes]
    if wanted != "auto":
        return (min(wanted, *each),)
    whole, group = math.gcd(*each), getattr(recipe.task, "group", 1)  # pairs of which each is told from the others
    whole, group = (whole, 1) if whole % group else (whole // group, group)  # what is refused is planned all the same
    small = [size for size in range(1, math.isqrt(whole) + 1) if whole % size == 0]
    return tuple(sorted({group * size for size in {*small, *(whole // size for size in small)}}, reverse=True))


def _run(model: AnyModel, workload: Workload, here: Here, kernels: KernelChoice) -> RunSpec:
    check_frozen(workload, here.cluster.device)
    return RunSpec(model=model, workload=workload, cluster=here.cluster, stack=read_stack(OURS), kernels=kernels)


def _layouts(workload: Workload, sizes: Sequence[int], parallel: ParallelPlan = ONE_DEVICE) -> Layouts:
    plans = [replace(parallel, micro_batch_sequences=size) for size in sizes]
    return Layouts.of(plans, [workload.recompute] * len(plans), workload)


def _stand_ins(recipe: Recipe, workload: Workload) -> tuple[Assumption, ...]:
    """Returns what is counted as something else, parameters frozen by name among it, and rates as they are scaled."""
    frozen = any(group.frozen for group in recipe.train.optimizer.groups)
    stand_ins = (*of_unmeasured(recipe.unmeasured, workload.optimizer), *of_frozen(frozen))
    return (*stand_ins, *rate_assumptions(recipe), *of_teacher(recipe, workload), *of_ramp(workload))


def _compiles(recipe: Recipe, run: RunSpec, here: Here) -> bool:
    """Returns whether the recipe asks for torch.compile, or the run is long enough to be worth it."""
    wanted = recipe.train.exec.compile
    if wanted != "auto":
        return wanted
    device = here.cluster.device.kind
    if not accelerator(device).compiles_by_itself or here.facts.compiler is None or not here.facts.python_headers:
        return False
    parallel = layout_of(recipe.train.exec, run) or ParallelPlan(dp_shard=run.cluster.devices)
    layouts = _layouts(run.workload, micro_batches(recipe, run.workload, parallel), parallel)
    every = forecast(run, layouts, here.source)
    # A machine that was busy when it was measured counts at its fast end: a moment decides nothing for good.
    doubtful = here.probes is not None and here.probes.doubtful
    seconds = every.low_s if doubtful else every.step_s
    step = np.min(np.where(every.fits, seconds, np.inf)) if every.fits.any() else seconds[-1]
    return bool(run.workload.steps * step > COMPILE_WORTH_S)


def _fitting(scenario: Scenario, sizes: Sequence[int], parallel: ParallelPlan) -> Plan:
    """Returns the plan of the best micro batch; of a smaller one where finished runs needed too much memory for it."""
    layouts = _layouts(scenario.run.workload, sizes, parallel)
    choice = best(scenario, layouts, same_speed=SAME_SPEED)
    if parallel.shares:
        # A plan knows one kind of device: which of them a place stands for nobody has said.
        note = Assumption(
            name="shares of the batch",
            value=":".join(map(str, parallel.shares)),
            unit="",
            origin="default",
            source="a step lasts as long as the place with most of it takes, all devices like this one",
            key="shares",
        )
        known = [each for each in scenario.assumptions if each.key != note.key]
        scenario = replace(scenario, assumptions=(*known, note))
        choice = replace(choice, parallel=replace(choice.parallel, shares=parallel.shares))
    plan = planned(scenario, choice).plan
    smaller = [size for size in sizes if size < plan.parallel.micro_batch_sequences]
    if plan.estimate.fits or not smaller:
        return plan
    need, have = plan.estimate.memory.total_bytes, plan.estimate.memory_available_bytes
    reason = f"does not fit: needs {format_bytes(need)} of {format_bytes(have)}"
    over = Rejected(name=mesh(plan.parallel, scenario.run.workload.recompute), reason=reason)
    less = _fitting(scenario, smaller, parallel)
    return replace(less, rejected=(over, *less.rejected))


def _with_range(estimate: Estimate, *, learnt: bool, length: float) -> Estimate:
    """Returns an estimate with the range of its time among what it rests on; ``length``: deviation of its length."""
    seconds = _widened(estimate.seconds, length)
    low, high = (end / seconds.mid for end in (seconds.low, seconds.high))
    source = "what finished runs leave open, and differ by among themselves" if learnt else "docs/en/planner.md"
    if length:
        source += "; and how long an epoch is, which the dataset will tell"
    note = range_of(low, high, "ledger" if learnt else "default", source)
    return replace(estimate, seconds=seconds, assumptions=(*estimate.assumptions, note))


def _rental_with_range(rented: Rental, length: float) -> Rental:
    if not rented.seconds:
        return rented
    ends = _widened(Interval(low=rented.seconds_low, mid=rented.seconds, high=rented.seconds_high), length)
    return replace(rented, seconds_low=ends.low, seconds_high=ends.high)


def _widened(seconds: Interval, length: float) -> Interval:
    """Returns the interval of a time that is in proportion to a length whose logarithm deviates by ``length``."""
    if not length:
        return seconds
    ends = (math.log(end / seconds.mid) for end in (seconds.low, seconds.high))
    fast, slow = (math.exp(math.hypot(end, INTERVAL * length)) for end in ends)
    return Interval(low=seconds.mid / fast, mid=seconds.mid, high=seconds.mid * slow)


def _precision(recipe: Recipe, facts: DatasetFacts, here: Here) -> Precision:
    """Returns the recipe's, or the one whose step is predicted to be faster."""
    # Of the recipe's vocabulary: what is trained must not depend on whether the dataset is there when it is planned.
    model = counted(recipe.model_spec(vocabulary=asked_vocabulary(recipe)))
    if recipe.train.precision != "auto":
        return recipe.train.precision
    known: list[Precision] = [dtype for dtype in ("bf16", "fp32") if dtype in here.cluster.device.flops_per_s]
    if not known:
        return "fp32"

    def seconds(precision: Precision) -> float:
        run = _run(model, resolve(recipe, facts, precision=precision), here, recipe.train.exec.kernels)
        return float(step_s(run, _layouts(run.workload, [1]), here.source)[0])

    return min(known, key=seconds)


def _changes_that_fit(recipe: Recipe, scenario: Scenario, parallel: ParallelPlan) -> tuple[Rejected, ...]:
    """Returns changes that make it fit in this layout, and are executed, with their time, the mildest first.

    Where none does, that is said in the only one, which no key asks for.
    """
    run = scenario.run
    if isinstance(run.model, ConvNetSpec):
        return (Rejected(name="a lower train.batch_tokens or model.image_size", reason="not tried"),)
    found: list[Rejected] = []
    for keys, shape, work in _changes(recipe, run):
        if len(found) == CHANGES:
            break
        changed = replace(scenario, run=replace(run, model=shape, workload=work))
        problems = replace(parallel, micro_batch_sequences=1).problems(shape, work, run.cluster)
        if problems or _refuses(recipe, changed.run)(parallel, work.recompute):
            continue
        made = planned(changed, best(changed, _layouts(work, [1], parallel))).plan.estimate
        if made.fits:
            found.append(Rejected(name=" ".join(keys), reason=format_seconds(made.seconds.mid), overrides=keys))
    width = "" if recipe.model.init_from else ", or a lower model.width"
    return tuple(found) or (Rejected(name=f"a larger device{width}", reason="no other change is enough"),)


def _changes(recipe: Recipe, run: RunSpec) -> Iterator[tuple[tuple[str, ...], ModelSpec, Workload]]:
    """Yields what may be changed of a recipe, the mildest first; a trained model keeps its shape."""
    model, workload, kind = run.transformer, run.workload, run.cluster.device.kind
    section, adapter = recipe.train, workload.adapter
    full = replace(workload, recompute="full", recompute_budget=0.0)
    yield ("train.exec.micro_batch=1",), model, workload
    yield ("train.recompute=selective",), model, replace(workload, recompute="selective", recompute_budget=0.0)
    yield ("train.recompute=full",), model, full
    if adapter is not None and adapter.frozen != "nf4" and kind in QUANTISING_KINDS:
        packed = replace(adapter, frozen="nf4")
        yield ("train.method.frozen=nf4",), model, replace(workload, adapter=packed)
        yield ("train.method.frozen=nf4", "train.recompute=full"), model, replace(full, adapter=packed)
    yield ("train.optimizer.name=muon", "train.recompute=full"), model, replace(full, optimizer="muon")
    for halvings in (2, 4, 8):
        tokens = section.sequence_tokens // halvings
        if tokens >= 1 and section.batch_tokens % tokens == 0:
            keys = (f"train.sequence_tokens={tokens}", "train.recompute=full")
            yield keys, model, replace(full, sequence_tokens=tokens)
    while model.layers > 1 and recipe.model.init_from is None:
        model = replace(model, layers=model.layers // 2)
        yield (f"model.layers={model.layers}", "train.recompute=full"), model, full
