"""Which layouts and precisions adapters are not trained in; no torch."""

from __future__ import annotations

from trainwright.spec.workload import ParallelPlan


def refusals(parallel: ParallelPlan, precision: str | None) -> tuple[str, ...]:
    """Returns why adapters are not trained so, a line for each field with the value that can be."""
    told = tuple(
        f"{axis}={getattr(parallel, axis)}: adapters stand beside whole matrices of all blocks; set {axis}=1"
        for axis in ("tp", "pp")
        if getattr(parallel, axis) > 1
    )
    if parallel.ep > 1:
        told += (f"ep={parallel.ep}: adapters stand beside all experts of a layer; set ep=1",)
    if precision == "fp8":
        told += ("precision=fp8: products with adapters beside them are not made in it; set train.precision=bf16",)
    return told
