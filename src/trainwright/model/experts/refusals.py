"""What mixtures of experts and latent attention are not trained with, known before any process starts; no torch."""

from __future__ import annotations

import math

from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import MASKED_KERNELS, KernelChoice, ParallelPlan

OF_MATRICES = ("muon", "adafactor")
"""Optimizers that treat a matrix as one."""


def refusals(
    model: ModelSpec,
    parallel: ParallelPlan,
    *,
    precision: str,
    optimizer: str,
    moments: str | None,
    frozen: str | None,
    kernels: KernelChoice,
) -> tuple[str, ...]:
    """Returns why a model is not trained so, a line for each field with the value that can be; empty where it is.

    Args:
        model: with experts, latent attention or sinks, or without.
        parallel: the layout.
        precision: of products.
        optimizer: its name.
        moments: the dtype of its moments, where that is no fp32.
        frozen: that of the weights beside adapters; None: there are none.
        kernels: of attention, and whether they are recorded.
    """
    reasons = []
    for axis, size in (("tp", parallel.tp), ("cp", parallel.cp)):
        if size > 1 and (model.experts is not None or model.latent is not None or model.sinks):
            what = "experts" if model.experts is not None else "latent attention" if model.latent else "sinks"
            shared = "matrices" if axis == "tp" else "sequences"
            reasons.append(f"{axis}={size}: a model with {what} has whole {shared} on each rank; set {axis}=1")
    if not parallel.experts_fit:
        near = math.gcd(parallel.ep, parallel.dp_shard)
        reasons.append(f"ep={parallel.ep}: its ranks are neighbours along dp_shard={parallel.dp_shard}; set ep={near}")
    if model.experts is not None and precision == "fp8":
        reasons.append("precision=fp8: experts' products are not in float8; set train.precision=bf16")
    if model.experts is not None and optimizer in OF_MATRICES:
        several = "it takes matrices one by one, and those of a layer's experts lie in one tensor"
        reasons.append(f"train.optimizer.name={optimizer}: {several}; set train.optimizer.name=adamw")
    if model.experts is not None and moments == "int8":
        reasons.append("train.optimizer.moments=int8: its blocks lie in matrices; set train.optimizer.moments=bf16")
    if model.experts is not None and frozen == "nf4":
        stacks = "experts are stacks of matrices, which nf4 is not made of"
        reasons.append(f"train.method.frozen=nf4: {stacks}; set train.method.frozen=auto")
    if model.experts is not None and kernels.cuda_graphs:
        reasons.append("cuda_graphs: how many tokens an expert has differs from step to step; set cuda_graphs=false")
    if kernels.attention in MASKED_KERNELS and (model.latent is not None or model.sinks):
        why = "it gives no place to sinks" if model.sinks else "latent attention's keys and values have other sizes"
        reasons.append(f"attention={kernels.attention}: {why}; set attention=sdpa")
    return tuple(reasons)
