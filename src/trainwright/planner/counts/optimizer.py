"""What an optimizer keeps of each parameter."""

from __future__ import annotations

from trainwright.planner.counts.parameters import block_matrix_parameters, parameter_counts
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import Workload

MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0 + 4 / 256}
"""int8: one fp32 scale for 256 elements (Dettmers et al., 2022, arXiv 2110.02861)."""


def moments_per_parameter(model: ModelSpec, workload: Workload) -> float:
    """Returns how many moments the optimizer keeps of each parameter.

    AdamW keeps two, SGD one, Muon one of the blocks' matrices and two of the rest. Adafactor counts as 0: it keeps a
    row and a column of each matrix.
    """
    if workload.optimizer == "muon":
        return 2.0 - block_matrix_parameters(model) / sum(parameter_counts(model).values())
    return {"adamw": 2.0, "sgd": 1.0, "adafactor": 0.0}[workload.optimizer]
