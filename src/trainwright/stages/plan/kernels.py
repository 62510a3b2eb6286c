"""Whether a recipe's kernels can carry out the plan that was made for it."""

from __future__ import annotations

from trainwright.core.registry import load
from trainwright.spec.plan import Plan
from trainwright.spec.workload import MASKED_KERNELS, KernelChoice

CHECK = "trainwright.model.kernels.refusals:check"


def executable(plan: Plan, kernels: KernelChoice) -> Plan:
    """Returns a plan that these kernels can carry out.

    Raises:
        RecipeError: they cannot; names each reason.
        MachineError: a package is missing.
    """
    if kernels.attention in MASKED_KERNELS or kernels.cuda_graphs:
        load(CHECK, kind="kernel")(plan, kernels)
    return plan
