"""What an update moves beyond one kernel of AdamW: operations that run one by one, and an average of the weights."""

from __future__ import annotations

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.parameters import AVERAGE_BYTES, block_matrix_parameters, total_parameters
from trainwright.planner.counts.ranks import owned_parameters
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import KernelChoice, Workload

OPERATIONS = 8
"""Of AdamW on one tensor (torch 2.13.0, torch/optim/adam.py): decay, the first moment, the second in two, its root, its
correction, epsilon, the step."""
UNFUSED_BYTES = 8.0 + 12.0 + (8.0 + 12.0) + (8.0 + 8.0 + 8.0) + 16.0
"""What they read and write for each parameter in fp32, in this order."""
FUSED_BYTES = 28.0
"""Weight, gradient and two moments read; weight and moments written."""


def unfused_bytes(model: ModelSpec, workload: Workload, layouts: Layouts, kernels: KernelChoice) -> Numbers:
    """Returns the bytes [L] that an update of one rank moves beyond the fused kernel's; AdamW's alone."""
    if kernels.update == "fused" or workload.optimizer not in ("adamw", "muon") or workload.adapter is not None:
        return np.zeros(len(layouts))
    share = 1.0
    if workload.optimizer == "muon":
        share -= block_matrix_parameters(model) / total_parameters(model)
    return np.asarray((UNFUSED_BYTES - FUSED_BYTES) * share * owned_parameters(model, layouts))


def averaging_bytes(model: ModelSpec, workload: Workload, layouts: Layouts) -> Numbers:
    """Returns the bytes [L] that the weights' average moves in a mean update: both are read, it is written."""
    if not workload.average_every:
        return np.zeros(len(layouts))
    return np.asarray(3.0 * AVERAGE_BYTES / workload.average_every * owned_parameters(model, layouts))
