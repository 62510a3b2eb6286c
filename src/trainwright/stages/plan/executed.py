"""Why this trainer does not execute what is asked about a model: rules of layouts that recipes have, too. No torch.

What a recipe's task or groups of parameters refuse beside them is said where it is trained (``stages/train/layout``).
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.core.registry import load
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.sections.updates.optimizer import OPTIMIZER_KEYS, OptimizerSection
from trainwright.spec.workload import ParallelPlan, Recompute, Workload

OF_LAYOUTS = "trainwright.stages.train.layout:refusals_of"
OF_PARTS = "trainwright.model.experts.refusals:refusals"
OF_BATCHES = "trainwright.model.vision.refusals:of_batches"
OF_RECOMPUTE = "trainwright.model.kernels.refusals:of_recompute"


def refuses(run: RunSpec) -> Callable[[ParallelPlan, Recompute], tuple[str, ...]]:
    """Returns what says why a layout of ``run`` is not executed, a line for each reason; nothing where it is."""
    model, work = run.model, run.workload
    of_layout = load(OF_LAYOUTS, kind="layout")(model, work, optimizer=_keys(work))
    of_recompute = load(OF_RECOMPUTE, kind="kernel")
    of_batches, of_parts = load(OF_BATCHES, kind="layout"), load(OF_PARTS, kind="layout")
    frozen = None if work.adapter is None else work.adapter.frozen
    always = _of_run(run)

    def reasons(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
        told = (*always, *of_recompute(run.kernels, recompute), *of_layout(parallel, recompute))
        if not isinstance(model, ModelSpec):
            batch, micro = work.batch_sequences, parallel.micro_batch_sequences
            return (*told, *of_batches(batch, micro, ranks=parallel.ranks, precision=work.precision))
        if not (model.experts or model.latent or model.sinks):
            return told
        how = {"precision": work.precision, "optimizer": work.optimizer, "moments": work.moments, "frozen": frozen}
        return (*told, *of_parts(model, parallel, kernels=run.kernels, **how))

    return reasons


def _of_run(run: RunSpec) -> tuple[str, ...]:
    """Returns why a run is not executed in any layout, beside what rules of layouts say: a recipe has no such keys."""
    model, work = run.model, run.workload
    told: tuple[str, ...] = ()
    if isinstance(model, ModelSpec) and model.further_layers:
        why = "no network of this trainer predicts further tokens; set `further_layers` to 0"
        told = (f"further_layers={model.further_layers}: {why}",)
    if work.moments not in (None, "fp32") and not _has_moments(work):
        told += (f"moments={work.moments}: those of {work.optimizer} are in fp32; leave moments out",)
    return told


def _has_moments(work: Workload) -> bool:
    return "moments" in type(_keys(work)).model_fields


def _keys(work: Workload) -> OptimizerSection:
    """Returns a recipe's keys of the optimizer that a workload counts."""
    keys = OPTIMIZER_KEYS["sgd" if work.optimizer == "plain-sgd" else work.optimizer]
    return keys.model_validate({"moments": work.moments} if work.moments and "moments" in keys.model_fields else {})
