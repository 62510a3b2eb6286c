"""Why this trainer does not execute what is asked about without a recipe, by the same rules as with one. No torch."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.core.registry import load
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.sections.updates.optimizer import OPTIMIZER_KEYS, OptimizerSection
from trainwright.spec.workload import ParallelPlan, Recompute, Workload

OF_LAYOUTS = "trainwright.stages.train.layout:refusals"
OF_PARTS = "trainwright.model.experts.refusals:refusals"


def refuses(run: RunSpec) -> Callable[[ParallelPlan, Recompute], tuple[str, ...]]:
    """Returns what says why a layout of ``run`` is not executed, a line for each reason; nothing where it is."""
    model, work = run.model, run.workload
    of_layouts, of_parts, optimizer = load(OF_LAYOUTS, kind="layout"), load(OF_PARTS, kind="layout"), _keys(work)

    def reasons(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
        told: tuple[str, ...] = of_layouts(
            parallel,
            recompute=recompute,
            blocks=model.blocks,
            family=model.family,
            optimizer=optimizer,
            precision=work.precision,
            adapts=work.adapter is not None,
            quantised=work.adapter is not None and work.adapter.frozen == "nf4",
        )
        if isinstance(model, ModelSpec) and (model.experts or model.latent or model.sinks):
            how = {"precision": work.precision, "optimizer": work.optimizer, "moments": work.moments}
            told += of_parts(model, parallel, kernels=run.kernels, **how)
        return told

    return reasons


def _keys(work: Workload) -> OptimizerSection:
    """Returns a recipe's keys of the optimizer that a workload counts."""
    keys = OPTIMIZER_KEYS["sgd" if work.optimizer == "plain-sgd" else work.optimizer]
    asked = {"moments": work.moments} if work.moments and "moments" in keys.model_fields else {}
    return keys.model_validate(asked)
