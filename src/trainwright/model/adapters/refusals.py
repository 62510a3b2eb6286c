"""Which layouts and precisions adapters are not trained in; no torch."""

from __future__ import annotations

from trainwright.spec.workload import ParallelPlan, Recompute


def refusals(
    parallel: ParallelPlan, precision: str | None, *, quantised: bool = False, recompute: Recompute = "none"
) -> tuple[str, ...]:
    """Returns why adapters are not trained so, a line for each field with the value that can be.

    ``quantised``: the base is kept in nf4.
    """
    told = tuple(
        f"{axis}={getattr(parallel, axis)}: adapters stand beside whole matrices of all blocks; set {axis}=1"
        for axis in ("tp", "pp")
        if getattr(parallel, axis) > 1
    )
    if parallel.ep > 1:
        told += (f"ep={parallel.ep}: adapters stand beside all experts of a layer; set ep=1",)
    if precision == "fp8":
        told += ("precision=fp8: products with adapters beside them are not made in it; set train.precision=bf16",)
    return told + (_of_quantised(parallel, recompute) if quantised else ())


def _of_quantised(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
    """Returns why adapters beside matrices in nf4 are not trained so: each rank has all of them."""
    told: tuple[str, ...] = ()
    if parallel.dp_shard > 1:
        told += (f"dp_shard={parallel.dp_shard}: matrices in nf4 are not divided; set dp_shard=1, and dp_replicate",)
    if parallel.cp > 1:
        told += (f"cp={parallel.cp}: sequences are not divided beside matrices in nf4; set cp=1",)
    if recompute == "selective":
        told += ("recompute=selective: products with nf4 are none that it keeps; set recompute=none or full",)
    return told
