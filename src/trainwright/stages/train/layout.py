"""What of a parallel plan the trainer executes: one device. The rest it refuses by name."""

from __future__ import annotations

from dataclasses import fields

from trainwright.spec.workload import ParallelPlan

EXECUTED = frozenset(("micro_batch_sequences", "compile", "threads"))
"""Fields that the trainer executes whatever they are."""

REASONS = {
    "dp_replicate": "one process trains one copy of the model",
    "dp_shard": "weights and optimizer state stay whole on one device",
    "tp": "matrices stay whole on one device",
    "pp": "all layers run on one device",
    "cp": "a sequence stays whole on one device",
    "ep": "experts are not built",
    "zero_stage": "there are no ranks to share state with",
    "sequence_parallel": "there are no tensor-parallel ranks to split activations over",
    "schedule": "there are no pipeline stages to schedule",
    "virtual_stages": "there are no pipeline stages to cut",
    "offload": "weights and optimizer state stay on the device",
}


def refusals(parallel: ParallelPlan) -> tuple[str, ...]:
    """Returns why a layout cannot be executed, a line for each field with the value that can be; empty where it can.

    A field without a meaning on one device must have its default too: a plan is executed as it is or not at all.
    """
    return tuple(
        f"{field.name}={getattr(parallel, field.name)}: {REASONS[field.name]}; set {field.name}={field.default}"
        for field in fields(ParallelPlan)
        if field.name not in EXECUTED and getattr(parallel, field.name) != field.default
    )
