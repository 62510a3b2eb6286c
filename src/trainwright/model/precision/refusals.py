"""What products in float8 do not run with, known before any process starts; no torch."""

from __future__ import annotations

from trainwright.spec.workload import ParallelPlan, Recompute


def refusals(parallel: ParallelPlan, recompute: Recompute) -> tuple[str, ...]:
    """Returns why float8 is not run so, a line for each field with the value that can be; empty where it is."""
    reasons = []
    if parallel.tp > 1:
        reasons.append(f"tp={parallel.tp}: float8 has one scale for a whole matrix; set tp=1")
    if parallel.schedule in ("zero_bubble", "dualpipe") and parallel.pp > 1:
        name = f"schedule={parallel.schedule}"
        reasons.append(f"{name}: float8 computes both gradients of a product at once; set schedule=1f1b")
    if recompute == "selective":
        reasons.append("recompute=selective: float8's products are none that it keeps; set recompute=none or full")
    return tuple(reasons)
