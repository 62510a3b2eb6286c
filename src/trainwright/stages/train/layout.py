"""What of a plan the trainer executes; the rest it refuses by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.spec.convnet import AnyModel
from trainwright.spec.families.family import DECODER, FAMILY
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.task import TaskKind
from trainwright.spec.sections.updates.optimizer import OptimizerSection
from trainwright.spec.workload import MASKED_KERNELS, Offload, ParallelPlan, Recompute, Workload

COUNTED = frozenset(("vocabulary", "steps", "validation_tokens", "validations"))
"""Fields that a plan estimates where it comes before its dataset; the dataset decides them."""

OFFLOADS: tuple[Offload, ...] = ("none", "optimizer")
"""What leaves the device in a training; of no other field of a layout a value is refused by itself."""
OF_PIPELINES = "trainwright.stages.train.ranks.pipeline.refusals:refusals"
OF_FLOAT8 = "trainwright.model.precision.refusals:refusals"
OF_ADAPTERS = "trainwright.model.adapters.refusals:refusals"
OF_KERNELS = "trainwright.model.kernels.refusals:refusals"
OF_PARTS = "trainwright.model.experts.refusals:refusals"
OF_BATCH_NORMS = "trainwright.model.vision.refusals:refusals"
OF_RECOMPUTE = "trainwright.model.kernels.refusals:of_recompute"


def refusals(
    parallel: ParallelPlan,
    *,
    recompute: Recompute = "none",
    blocks: int | None = None,
    family: str | None = None,
    divides: bool = True,
    pipelines: bool = True,
    tensors: bool = True,
    optimizer: OptimizerSection | None = None,
    precision: str | None = None,
    adapts: bool = False,
    quantised: bool = False,
    offloads: bool = False,
) -> tuple[str, ...]:
    """Returns why a layout cannot be executed, a line for each field with the value that can be; empty where it can.

    ``divides``: whether the task's sequences may lie on several ranks, ``pipelines``: whether its network may, in
    stages, ``tensors``: with matrices that are cut. ``optimizer``: the recipe's, where it is known. ``adapts``:
    adapters are trained, ``quantised``: beside a base in nf4. ``offloads``: activations are in the host's memory.
    """
    alone: tuple[str, ...] = ()
    if parallel.offload not in OFFLOADS:
        alone = (f"offload={parallel.offload}: weights and gradients stay on the device; set offload=none",)
    whole = tuple(axis for axis in ("tp", "pp", "cp") if getattr(parallel, axis) > 1)
    if whole and family is not None and FAMILY.knows(family) and FAMILY.load(family).network != DECODER:
        own = f"{family} has a network of its own, which has all of a sequence on one device"
        alone += tuple(f"{axis}={getattr(parallel, axis)}: {own}; set {axis}=1" for axis in whole)
    if parallel.cp > 1 and not divides:
        alone += (f"cp={parallel.cp}: the task reads whole sequences; set cp=1",)
    if parallel.pp > 1 and not pipelines:
        alone += (f"pp={parallel.pp}: the task needs its network on each rank; set pp=1",)
    if parallel.tp > 1 and not tensors:
        alone += (f"tp={parallel.tp}: the task compares all logits of a token on one rank; set tp=1",)
    if offloads and recompute == "selective":
        alone += ("recompute=selective: activation_offload moves nothing that it keeps; set recompute=none or full",)
    alone += () if optimizer is None else optimizer.refusals(parallel)
    if adapts:
        alone += load(OF_ADAPTERS, kind="layout")(parallel, precision, quantised=quantised, recompute=recompute)
    if precision == "fp8":
        alone += load(OF_FLOAT8, kind="precision")(parallel, recompute)
    return alone if parallel.pp == 1 else (*alone, *load(OF_PIPELINES, kind="layout")(parallel, recompute, blocks))


def refusals_of(
    model: AnyModel, work: Workload, *, optimizer: OptimizerSection | None = None, task: TaskKind | None = None
) -> Callable[[ParallelPlan, Recompute], tuple[str, ...]]:
    """Returns ``refusals`` of a counted run: all that it says of itself, where a plan, a recipe or a change asks."""
    adapter, able = work.adapter, {}
    if task is not None:
        able = {"divides": task.divides, "pipelines": task.pipelines, "tensors": task.tensors}

    def reasons(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
        return refusals(
            parallel,
            recompute=recompute,
            blocks=model.blocks,
            family=model.family,
            optimizer=optimizer,
            precision=work.precision,
            adapts=adapter is not None,
            quantised=adapter is not None and adapter.frozen == "nf4",
            offloads=work.activation_offload,
            **able,
        )

    return reasons


def refuses(recipe: Recipe, model: AnyModel, work: Workload) -> Callable[[ParallelPlan, Recompute], tuple[str, ...]]:
    """Returns what says why a layout is not executed for a recipe; ``auto`` and ``fit_memory`` choose of the rest."""
    kernels = recipe.train.exec.kernels
    of_layout = refusals_of(model, work, optimizer=recipe.train.optimizer, task=recipe.task.kind)

    def reasons(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
        of_kernels = (
            load(OF_RECOMPUTE, kind="kernel")(kernels, recompute) if kernels.attention in MASKED_KERNELS else ()
        )
        return (
            *of_kernels,
            *of_parts(recipe, model, parallel, precision=work.precision),
            *of_batch_norms(recipe, parallel),
            *of_layout(parallel, recompute),
        )

    return reasons


def of_parts(recipe: Recipe, model: AnyModel, parallel: ParallelPlan, *, precision: str) -> tuple[str, ...]:
    """Returns why a model's experts, latent attention or sinks are not trained so."""
    if not isinstance(model, ModelSpec) or not (model.experts or model.latent or model.sinks):
        return ()
    optimizer, method = recipe.train.optimizer, recipe.train.method
    how = {"precision": precision, "optimizer": optimizer.name, "moments": optimizer.reduced_moments}
    how["frozen"] = method.frozen if method.adapts else None
    reasons: tuple[str, ...] = load(OF_PARTS, kind="layout")(model, parallel, kernels=recipe.train.exec.kernels, **how)
    return reasons


def of_batch_norms(recipe: Recipe, parallel: ParallelPlan | None) -> tuple[str, ...]:
    """Returns why a batch is not divided so: batch norms, or the task, refuse it; without a layout on one process."""
    refuses = OF_BATCH_NORMS if recipe.model.convolutions is not None else recipe.task.kind.micro_batches
    reasons: tuple[str, ...] = () if refuses is None else load(refuses, kind="layout")(recipe, parallel)
    return reasons


def check_executable(plan: Plan, recipe: Recipe) -> None:
    """Refuses a plan whose layout the trainer cannot execute for this recipe.

    Raises:
        RecipeError: names each field that cannot be, with what to set; or the precision that the device lacks.
    """
    model, work, device = plan.model, plan.workload, plan.cluster.device
    if work.precision in ("tf32", "fp8") and not device.flops_per_s.get(work.precision):
        seen, lacks = device.name, work.precision
        raise RecipeError("the plan's device has no {precision}", where="plan", seen=seen, precision=lacks)
    reasons = refuses(recipe, model, work)(plan.parallel, work.recompute)
    kernels = recipe.train.exec.kernels
    if kernels.attention in MASKED_KERNELS or kernels.cuda_graphs:
        others = (each.reason for each in load(OF_KERNELS, kind="kernel")(plan, kernels))
        reasons = tuple(dict.fromkeys((*reasons, *others)))
    if reasons:
        raise RecipeError("the trainer cannot execute this plan", where="plan", seen="; ".join(reasons))


def plan_differences(plan: Plan, model: AnyModel, workload: Workload, unmeasured: Mapping[str, str]) -> tuple[str, ...]:
    """Returns each field in which what a plan is of is not what is trained, with both values.

    ``unmeasured`` is the recipe's: what model and workload say something else for.
    """
    other = plan.unmeasured != unmeasured
    return (f"unmeasured={dict(plan.unmeasured)} for {dict(unmeasured)}",) * other + tuple(
        f"{name}={getattr(planned, name)} for {getattr(trained, name)}"
        for planned, trained in ((plan.model, model), (plan.workload, workload))
        for name in (field.name for field in fields(type(trained)))
        if name not in COUNTED and getattr(planned, name) != getattr(trained, name)
    )
