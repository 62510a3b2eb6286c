"""What of a plan the trainer executes; the rest it refuses by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from trainwright.core.registry import load
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.workload import ParallelPlan, Recompute, Workload

COUNTED = frozenset(("vocabulary", "steps", "validation_tokens", "validations"))
"""Fields that a plan estimates where it comes before its dataset; the dataset decides them."""

EXECUTED = frozenset(
    ("dp_replicate", "dp_shard", "zero_stage", "pp", "schedule", "virtual_stages", "cp", "context", "shares")
) | {"micro_batch_sequences", "compile", "threads", "deterministic"}
"""Fields that the trainer executes whatever they are."""

OF_OTHERS = frozenset(("sequence_parallel",))
"""Fields that say how axes are shared which are refused already: of one rank they say nothing."""

REASONS = {
    "tp": "matrices stay whole on one device",
    "ep": "experts are not built",
    "offload": "weights and optimizer state stay on the device",
}
OF_PIPELINES = "trainwright.stages.train.ranks.pipeline.refusals:refusals"


def refusals(
    parallel: ParallelPlan, *, recompute: Recompute = "none", blocks: int | None = None, divides: bool = True
) -> tuple[str, ...]:
    """Returns why a layout cannot be executed, a line for each field with the value that can be; empty where it can.

    ``divides``: whether the task's sequences may lie on several ranks.
    """
    alone = tuple(
        f"{field.name}={getattr(parallel, field.name)}: {REASONS[field.name]}; set {field.name}={field.default}"
        for field in fields(ParallelPlan)
        if field.name in REASONS and getattr(parallel, field.name) != field.default
    )
    if parallel.cp > 1 and not divides:
        alone += (f"cp={parallel.cp}: the task reads whole sequences; set cp=1",)
    return alone if parallel.pp == 1 else (*alone, *load(OF_PIPELINES, kind="layout")(parallel, recompute, blocks))


def plan_differences(
    plan: Plan, model: ModelSpec, workload: Workload, unmeasured: Mapping[str, str]
) -> tuple[str, ...]:
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
