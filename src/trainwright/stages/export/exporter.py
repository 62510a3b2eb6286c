"""``Exporter``: a form that other tools read, written and read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from trainwright.artifact.store import Artifact
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe

Logits = Callable[[Tensor], Tensor]
"""From token ids ``[batch, seq]`` to the head's outputs ``[batch, seq, outputs]`` in fp32.

Of a network that sees images from normalised ones ``[batch, channels, side, side]``."""


def outputs_of(network: Network, tokens: Tensor) -> Tensor:
    """Returns the head's outputs; of a network without a head its hidden states."""
    hidden: Tensor = network(tokens)
    return network.logits(hidden) if network.spec.classes or network.spec.makes_logits else hidden


@runtime_checkable
class Exporter(Protocol):
    """Writes a network into a folder of its own, and computes with what stands there."""

    def write(
        self, directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype
    ) -> None:
        """Write everything that the form needs.

        Args:
            directory: where; it exists and is empty, or holds what an interrupted export wrote.
            network: its weights are rounded to ``dtype`` already, and stored in fp32.
            recipe: what it was made from.
            trained: the checkpoint, with its tokenizer.
            dtype: stored precision of the weights.

        Raises:
            RecipeError: the shape has no form there; names what stands in the way.
            MachineError: the disk is full, or cannot be written.
        """

    def read(self, directory: Path) -> Logits:
        """Returns what computes the logits from the files alone, in fp32."""
