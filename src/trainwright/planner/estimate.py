"""Puts an estimate together: memory, phases of a step and of the run, their range, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwright.planner.flops import training_flops_per_token
from trainwright.planner.layout import Device, Layout
from trainwright.planner.memory import optimizer_bytes
from trainwright.planner.parameters import total_parameters
from trainwright.planner.step_time import backward_times, forward_times, validation_s
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Estimate, Interval
from trainwright.spec.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a run costs besides its steps, and how sure the rates are.

    ``checkpoint_bytes_per_s``: writing and digesting; ``checkpoint_every_s``: 0 writes the last one only;
    ``spread``: relative half-width of the range that the run's time is expected in.
    """

    checkpoint_bytes_per_s: float
    checkpoint_every_s: float
    compile_s: float
    spread: tuple[float, float]


def estimate(
    model: ModelSpec,
    workload: Workload,
    layout: Layout,
    device: Device,
    surroundings: Surroundings,
    *,
    peak_flops_per_s: float,
    assumptions: tuple[Assumption, ...],
) -> tuple[Estimate, Workload]:
    """The estimate of one layout, and the workload with its number of checkpoints filled in."""
    steps = layout.phases.scaled(workload.steps)
    evaluate_s = validation_s(device.rates, model, workload, layout.batch)
    recompute = workload.recompute == "full"
    passes = forward_times(device.rates, model, layout.batch).total_s
    dry_run_s = passes + backward_times(device.rates, model, layout.batch, recompute=recompute, first=True).total_s
    every_s = surroundings.checkpoint_every_s
    checkpoints = 1 + (int((steps.total_s + evaluate_s) / every_s) if every_s > 0 else 0)
    workload = replace(workload, checkpoints=checkpoints)
    size_bytes = 4 * total_parameters(model) + optimizer_bytes(model, workload)
    run = replace(
        steps,
        evaluate=evaluate_s,
        checkpoint=checkpoints * size_bytes / surroundings.checkpoint_bytes_per_s,
        other=steps.other + dry_run_s + surroundings.compile_s,
    )
    speed = workload.batch_tokens / layout.phases.total_s
    low, high = surroundings.spread
    flops_per_token = training_flops_per_token(model, sequence_tokens=workload.sequence_tokens)
    return (
        Estimate(
            fits=layout.fits,
            memory=layout.memory,
            memory_available_bytes=device.memory_available_bytes,
            phases=layout.phases,
            run_phases=run,
            tokens_per_s=speed,
            mfu=speed * flops_per_token / peak_flops_per_s,
            seconds=Interval(low=low * run.total_s, mid=run.total_s, high=high * run.total_s),
            usd=None,
            bottleneck=bottleneck(model, workload, layout, device),
            assumptions=assumptions,
        ),
        workload,
    )


def step_parts(model: ModelSpec, workload: Workload, layout: Layout, device: Device) -> Mapping[str, float]:
    """Seconds of a step by kind of work, over all its micro batches."""
    forward = forward_times(device.rates, model, layout.batch)
    recompute = workload.recompute == "full"
    backward = backward_times(device.rates, model, layout.batch, recompute=recompute, first=layout.accumulation == 1)
    times = layout.accumulation
    return {
        "matrix products of the blocks": times * (forward.products + backward.products),
        "attention": times * (forward.attention + backward.attention),
        "memory traffic between the products": times * (forward.rest + backward.rest),
        "the loss over the vocabulary": times * (forward.loss + backward.loss),
        "the optimizer's update": layout.phases.update,
    }


def bottleneck(model: ModelSpec, workload: Workload, layout: Layout, device: Device) -> str:
    """The kind of work that takes most of a step, with its share."""
    parts = step_parts(model, workload, layout, device)
    name = max(parts, key=lambda part: parts[part])
    return f"{name} ({parts[name] / layout.phases.total_s:.0%} of a step)"
