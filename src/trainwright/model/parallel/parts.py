"""What a network asks where other ranks have other tokens of its sequences; ``model.parallel.context`` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.spec.workload import AttentionKernel

if TYPE_CHECKING:
    from trainwright.model.dropout import Draw


class Context(Protocol):
    """Attention of this rank's queries to the keys of all ranks, in one pass."""

    def attend(
        self,
        query: Float[Tensor, "batch heads seq head"],
        key: Float[Tensor, "batch kv_heads seq head"],
        value: Float[Tensor, "batch kv_heads seq head"],
        kernel: AttentionKernel,
        *,
        draw: Draw | None,
        layer: int,
    ) -> Float[Tensor, "batch heads seq head"]:
        """Returns the mixed values of this rank's tokens; all ranks of the axis ask together, layer by layer."""


class Parts(Protocol):
    """The ranks that have parts of every sequence."""

    def context(
        self, documents: Int[Tensor, "batch whole"] | None, places: Int[Tensor, " seq"], dtype: torch.dtype
    ) -> Context:
        """Returns the context of one pass: documents of whole sequences, this rank's places, dtype of activations."""
