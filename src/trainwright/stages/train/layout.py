"""What of a plan the trainer executes; the rest it refuses by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Plan
from trainwright.spec.workload import ParallelPlan, Recompute, Workload

COUNTED = frozenset(("vocabulary", "steps", "validation_tokens", "validations"))
"""Fields that a plan estimates where it comes before its dataset; the dataset decides them."""

EXECUTED = frozenset(
    (
        *("dp_replicate", "dp_shard", "zero_stage", "pp", "schedule", "virtual_stages"),
        *("micro_batch_sequences", "compile", "threads", "deterministic"),
    )
)
"""Fields that the trainer executes whatever they are."""

OF_OTHERS = frozenset(("sequence_parallel",))
"""Fields that say how axes are shared which are refused already: of one rank they say nothing."""

REASONS = {
    "tp": "matrices stay whole on one device",
    "cp": "a sequence stays whole on one device",
    "ep": "experts are not built",
    "offload": "weights and optimizer state stay on the device",
}


SPLIT_BACKWARD = frozenset(("zero_bubble", "dualpipe"))
"""Schedules that compute gradients of a stage's inputs before those of its weights."""


def refusals(parallel: ParallelPlan, *, recompute: Recompute = "none", blocks: int | None = None) -> tuple[str, ...]:
    """Returns why a layout cannot be executed, a line for each field with the value that can be; empty where it can.

    ``blocks`` are the model's; None: as many as the layout needs.
    """
    alone = tuple(
        f"{field.name}={getattr(parallel, field.name)}: {REASONS[field.name]}; set {field.name}={field.default}"
        for field in fields(ParallelPlan)
        if field.name in REASONS and getattr(parallel, field.name) != field.default
    )
    return alone if parallel.pp == 1 else (*alone, *_in_a_pipeline(parallel, recompute, blocks))


def _in_a_pipeline(parallel: ParallelPlan, recompute: Recompute, blocks: int | None) -> Iterator[str]:
    """Yields what torch's schedules do not run."""
    name = f"schedule={parallel.schedule}"
    stages = 2 * parallel.pp  # of a rank it runs two, where DualPipe of the paper has each stage on two ranks
    if parallel.schedule == "dualpipe" and blocks is not None and stages > blocks:
        yield f"{name}: {stages} stages for {blocks} blocks; set pp={blocks // 2}"
    if parallel.virtual_stages > 1 and parallel.schedule != "interleaved":
        chunks = f"virtual_stages={parallel.virtual_stages}"
        yield f"{chunks}: {name} has one stage on a rank; set schedule=interleaved or virtual_stages=1"
    if parallel.zero_stage == 2:
        yield "zero_stage=2: a pipeline adds up whole gradients over its micro batches; set zero_stage=1"
    if parallel.schedule in SPLIT_BACKWARD and parallel.compile:
        yield f"compile=True: {name} splits the backward pass, and compiled blocks run it in one; set compile=False"
    if parallel.schedule in SPLIT_BACKWARD and recompute != "none":
        yield f"{name}: it would compute a block again for each of its matrices; set recompute=none or schedule=1f1b"


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
