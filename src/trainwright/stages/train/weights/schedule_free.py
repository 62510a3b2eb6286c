"""Runs whose optimizer averages the weights itself: the average is measured, kept beside the weights, and exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor

from trainwright.artifact.checkpoint.index import AVERAGE
from trainwright.model.network import Network
from trainwright.model.optimizers.elementwise import ScheduleFreeAdamW
from trainwright.stages.train.optimizer import Optimizers, moved
from trainwright.stages.train.weights.average import give, local_of


class ScheduleFreeOptimizers(Optimizers):
    """Schedule-free optimizers, whose average is made where it is needed: it takes no memory between updates."""

    def __init__(self, network: Network, inner: Optimizers) -> None:
        """Stand before other optimizers.

        Args:
            network: this process's part of it.
            inner: over its parameters.
        """
        self._inner, self.members = inner, inner.members
        self._network = network
        self._weights = network.trained()
        self._averaging = {
            parameter: member
            for member in inner.members
            if isinstance(member, ScheduleFreeAdamW)
            for group in member.param_groups
            for parameter in group["params"]
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every state tensor with its name, and the average of each parameter, which nothing reads back."""
        yield from self._inner.tensors()
        for name, weight in self._weights.items():
            yield f"{name}.{AVERAGE}", self._average(weight)

    def on_device(self) -> Iterator[Tensor]:
        """Yields the state tensors that take memory of the network's device."""
        return self._inner.on_device()

    def load(self, tensors: dict[str, Tensor], part: Callable[[Tensor, Tensor], Tensor] = moved) -> None:
        """Take over state tensors by name, as ``Optimizers`` does."""
        self._inner.load({name: each for name, each in tensors.items() if name.rpartition(".")[2] != AVERAGE}, part)

    def result(self) -> AbstractContextManager[None]:
        """Returns a context within which the network has the averaged weights."""
        return self._averaged()

    @property
    def result_is_average(self) -> bool:
        """Returns True: such a run is measured by its average alone."""
        return True

    def _average(self, weight: Tensor) -> Tensor:
        member = self._averaging.get(weight)
        return weight.detach() if member is None else member.averaged(weight)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Gives the network the average, which takes no more room than the gradients that are gone."""
        weights = self._weights.values()
        part = local_of(weights)
        trained = [part(weight.detach()).clone() for weight in weights]
        give(self._network, weights, (part(self._average(weight)) for weight in weights))
        try:
            yield
        finally:
            give(self._network, weights, trained)
