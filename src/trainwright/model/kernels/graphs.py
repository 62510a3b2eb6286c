"""CUDA graphs: compiled code is recorded once and launched as one piece after that (torch's graph trees).

What a graph makes lies where it lay when it was recorded, and the next pass writes there. So each pass is announced,
and gradients are added up in memory of their own: else torch would keep a graph's as ``.grad``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class CudaGraphs:
    """The recorded passes over some parameters."""

    options: Mapping[str, bool] = {"triton.cudagraphs": True}
    """What torch.compile takes so that its code is recorded."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]

    def begin(self) -> None:
        """Announces a forward pass: nobody reads again what an earlier one made but its sums."""
        torch.compiler.cudagraph_mark_step_begin()
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
