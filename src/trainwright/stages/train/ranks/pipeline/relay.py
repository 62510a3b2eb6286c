"""``Relay``: stands before a task for a network that lies on several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from trainwright.model.losses import Loss
from trainwright.model.network import Network


class Pass(Protocol):
    """A forward pass, with the arguments of ``Network.forward``."""

    def __call__(self, tokens: Tensor, **inputs: Any) -> Tensor:
        """Returns hidden states, or what a stage makes of them."""


class Relay(Network):
    """A network whose forward pass is a function; all else is what this rank has of it.

    A task calls a network as a whole, and says which positions and documents it needs; so a stage hears them from the
    task that it was written for, and knows none.
    """

    def __init__(self, network: Network, run: Pass) -> None:
        super().__init__()
        self.here = network
        self.spec, self.compute_dtype, self.blocks = network.spec, network.compute_dtype, network.blocks
        self.run = run
        self.output: Tensor | None = None

    def forward(self, tokens: Tensor, **inputs: Any) -> Tensor:
        """Returns what the function returns, and keeps it in ``output``."""
        self.output = self.run(tokens, **inputs)
        return self.output

    @property
    def head_weight(self) -> Tensor:
        """Returns the head's matrix; the last stage alone has it."""
        return self.here.head_weight

    def head_loss(self, hidden: Tensor, targets: Tensor, *, factors: Tensor | None = None) -> Loss:
        """Returns the loss of the head here."""
        return self.here.head_loss(hidden, targets, factors=factors)

    def token_losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Returns the losses of the head here."""
        return self.here.token_losses(hidden, targets)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the outputs of the head here."""
        return self.here.logits(hidden)

    def matrices(self) -> Mapping[str, nn.Parameter]:
        """Returns this rank's."""
        return self.here.matrices()

    def tables(self) -> Mapping[str, nn.Parameter]:
        """Returns this rank's."""
        return self.here.tables()

    def initial(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's first values."""
        return self.here.initial(seed)
