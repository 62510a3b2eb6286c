"""From a recipe and a machine's record to a plan: every ``auto`` resolved, with what it rests on."""

from __future__ import annotations

from dataclasses import replace

from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_duration
from trainwright.hardware.catalogue import device as catalogue_device
from trainwright.hardware.prices import price_list
from trainwright.hardware.record import Machine
from trainwright.planner.estimate import estimate
from trainwright.planner.experience import Case, Learnt, calibrated, learn, room
from trainwright.planner.layout import Device, Layout, choose, evaluate, micro_batches
from trainwright.planner.local import COMPILE_WORTH_S, Local, local
from trainwright.planner.money import rental
from trainwright.planner.parameters import parameter_counts, total_parameters
from trainwright.planner.published.finished import Ledger
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Plan, Rejected
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import ParallelPlan, Precision, Workload

DEFAULT_VALIDATION_TOKENS = 100_000
"""Taken where the recipe validates on a whole split whose size is not known yet."""


def build_plan(recipe: Recipe, machine: Machine, ledger: Ledger | None = None) -> Plan:
    """The plan that the trainer executes, with what the ledger's runs of this machine say about its time and memory.

    What runs say scales the estimate; precision and compilation are chosen without them, so that what is trained does
    not depend on what was trained before.

    Raises:
        RecipeError: an impossible workload, an unknown device to price, or a length that depends on the dataset.
        MachineError: CUDA is asked for and not there.
    """
    rented = [catalogue_device(name, where="plan.rent_on") for name in recipe.plan.rent_on]
    model = recipe.model.spec(vocabulary=recipe.data.tokenizer.vocabulary)
    how = recipe.train.exec
    compiled = how.compile is True
    here = _local(recipe, machine, model, compiled=compiled)
    precision = _precision(recipe, model, here)
    workload = _workload(recipe, model, precision=precision)
    problems = workload.problems(model)
    if problems:
        raise RecipeError("; ".join(problems), where="train")
    layout, rejected = _layout(recipe, model, workload, here.device)
    if how.compile == "auto" and here.can_compile and workload.steps * layout.phases.total_s > COMPILE_WORTH_S:
        compiled = True
        here = _local(recipe, machine, model, compiled=True)
        layout, rejected = _layout(recipe, model, workload, here.device)
    case = _case(recipe, machine, here, model, workload)
    learnt, layout, rejected = _learnt(recipe, ledger or Ledger(), case, layout, rejected)
    found, workload = estimate(
        model, workload, layout, here.device, replace(here.surroundings, checkpoint_every_s=how.checkpoint_every),
        peak_flops_per_s=here.peak_flops_per_s[precision], assumptions=(*here.assumptions,
        *_recipe_assumptions(recipe, model)),
    )  # fmt: skip
    found = calibrated(found, learnt, available_bytes=here.device.memory_available_bytes)
    if not found.fits:
        rejected = (*rejected, _smallest_change(recipe, model, workload, room(here.device, learnt)))
    prices = price_list()
    return Plan(
        model=model,
        parameters=parameter_counts(model),
        workload=workload,
        cluster=here.cluster,
        parallel=ParallelPlan(micro_batch_sequences=layout.batch.sequences, compile=compiled, threads=case.threads),
        estimate=found,
        rejected=rejected,
        rentals=tuple(rental(model, workload, device, prices) for device in rented),
    )


def _local(recipe: Recipe, machine: Machine, model: ModelSpec, *, compiled: bool) -> Local:
    tokens = recipe.train.sequence_tokens
    return local(machine, model, wanted=recipe.train.exec.device, tokens=tokens, compiled=compiled)


def _case(recipe: Recipe, machine: Machine, here: Local, model: ModelSpec, workload: Workload) -> Case:
    """What finished runs are asked about."""

    def remake(other: ModelSpec, tokens: int, compiled: bool) -> Local:
        return local(machine, other, wanted=recipe.train.exec.device, tokens=tokens, compiled=compiled)

    threads = here.threads if recipe.train.exec.threads == "auto" else recipe.train.exec.threads
    return Case(facts=machine.facts, here=here, model=model, workload=workload, threads=threads, remake=remake)


def _learnt(
    recipe: Recipe, ledger: Ledger, case: Case, layout: Layout, rejected: tuple[Rejected, ...]
) -> tuple[Learnt, Layout, tuple[Rejected, ...]]:
    """What runs say of the layout; where they needed so much more memory that it does not fit, of a smaller one."""
    learnt = learn(ledger, case, layout)
    smaller = room(case.here.device, learnt)
    if layout.fits and layout.memory.total_bytes > smaller.memory_available_bytes:
        layout, rejected = _layout(recipe, case.model, case.workload, smaller)
        learnt = learn(ledger, case, layout)
    return learnt, layout, rejected


def _precision(recipe: Recipe, model: ModelSpec, here: Local) -> Precision:
    """The recipe's, or the one whose step is predicted to be faster."""
    if recipe.train.precision != "auto":
        return recipe.train.precision
    known: list[Precision] = [dtype for dtype in ("bf16", "fp32") if dtype in here.peak_flops_per_s]
    if not known:
        return "fp32"

    def step_s(precision: Precision) -> float:
        workload = _workload(recipe, model, precision=precision)
        return evaluate(model, workload, here.device, sequences=1).phases.total_s

    return min(known, key=step_s)


def _workload(recipe: Recipe, model: ModelSpec, *, precision: Precision) -> Workload:
    section = recipe.train
    tokens = parse_duration(section.duration).tokens(
        batch_tokens=section.batch_tokens, parameters=total_parameters(model)
    )
    steps = round(tokens / section.batch_tokens)
    if steps < 1:
        raise RecipeError(
            "the run is shorter than one update", where="train.duration", seen=f"{tokens} tokens",
            expected=f"at least train.batch_tokens ({section.batch_tokens})",
        )  # fmt: skip
    validates = recipe.data.split.validation > 0
    return Workload(
        sequence_tokens=section.sequence_tokens, batch_tokens=section.batch_tokens, steps=steps, precision=precision,
        optimizer=section.optimizer.name, recompute=section.recompute, document_masking=section.document_masking,
        validation_tokens=section.validation.tokens or DEFAULT_VALIDATION_TOKENS,
        validations=-(-steps // section.validation.every_steps) if validates else 0,
    )  # fmt: skip


def _layout(
    recipe: Recipe, model: ModelSpec, workload: Workload, device: Device
) -> tuple[Layout, tuple[Rejected, ...]]:
    wanted = recipe.train.exec.micro_batch
    sizes = micro_batches(workload) if wanted == "auto" else (min(wanted, workload.batch_sequences),)
    return choose(model, workload, device, sequences=sizes)


def _smallest_change(recipe: Recipe, model: ModelSpec, workload: Workload, device: Device) -> Rejected:
    """The first change, from the mildest on, that makes it fit."""
    section = recipe.train
    changes: list[tuple[str, ModelSpec, Workload]] = [
        ("train.exec.micro_batch=1", model, workload),
        ("train.recompute=full", model, replace(workload, recompute="full")),
        (
            "train.optimizer.name=muon train.recompute=full",
            model,
            replace(workload, recompute="full", optimizer="muon"),
        ),
    ]
    for halvings in (2, 4, 8):
        tokens = section.sequence_tokens // halvings
        if tokens >= 1 and section.batch_tokens % tokens == 0:
            shorter = replace(workload, sequence_tokens=tokens, recompute="full")
            changes.append((f"train.sequence_tokens={tokens} train.recompute=full", model, shorter))
    smaller = model
    while smaller.layers > 1:
        smaller = replace(smaller, layers=smaller.layers // 2)
        changes.append(
            (f"model.layers={smaller.layers} train.recompute=full", smaller, replace(workload, recompute="full"))
        )
    for name, shape, work in changes:
        if evaluate(shape, work, device, sequences=1).fits:
            return Rejected(name="smallest change that fits", reason=name)
    return Rejected(name="smallest change that fits", reason="none: lower model.width, or use a larger device")


def _recipe_assumptions(recipe: Recipe, model: ModelSpec) -> tuple[Assumption, ...]:
    given = recipe.train.validation.tokens
    return (
        Assumption(
            name="tokens of a validation", value=float(given or DEFAULT_VALIDATION_TOKENS), unit="tokens",
            origin="recipe" if given else "default", source="" if given else "the split's size is not known yet",
        ),
        Assumption(
            name="vocabulary", value=float(model.vocabulary), unit="entries", origin="recipe", source="data.tokenizer"
        ),
    )  # fmt: skip
