"""An exponential moving average of the weights, part for part where they lie, and part of the optimizer's state.

After every ``every_steps``-th step of the run the average moves towards the weights: ``average += (1 - decay) *
(weights - average)``. A step whose update was refused counts like any other, on every device: there the average moves
towards weights that did not change. Each process averages what it has of the parameters, so that no layout sends
anything for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from trainwright.artifact.checkpoint.index import AVERAGE
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.weights.average import EmaSection
from trainwright.stages.train.optimizer import Optimizers, moved

UPDATES = "average_updates"
"""State of every parameter beside its average: the steps of the run so far, which is one number for all."""
SHARDED = "trainwright.model.parallel.parallelize:sharded_modules"
LOCAL = "trainwright.runtime.norms:local"
SCHEDULE_FREE = "trainwright.stages.train.weights.schedule_free:ScheduleFreeOptimizers"


def _all(tensor: Tensor) -> Tensor:
    return tensor


def local_of(weights: Iterable[Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns what gives of these weights, and of tensors laid out as they are, the part that this process has."""
    shared = any(hasattr(weight, "device_mesh") for weight in weights)
    found: Callable[[Tensor], Tensor] = load(LOCAL, kind="layout") if shared else _all
    return found


@torch.no_grad()
def give(network: Network, weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    """Fills weights of a network; those that are gathered from other ranks are let go, for they are none of these.

    Args:
        network: this process's part of it.
        weights: parameters of it.
        values: for each of them what this process has of the new one.
    """
    weights = tuple(weights)
    part = local_of(weights)
    if part is not _all:
        for module in load(SHARDED, kind="layout")(network):
            module.reshard()
    for weight, value in zip(weights, values, strict=True):
        part(weight).copy_(value)


def averaged(network: Network, optimizers: Optimizers, train: TrainSection, start: int) -> Optimizers:
    """Returns optimizers that keep an average of the weights, as a recipe asks for it.

    Args:
        network: this process's part of it.
        optimizers: over its parameters.
        train: of the recipe; where it averages nothing the optimizers stay as they are.
        start: steps of the run before a moving average begins.
    """
    if train.ema is not None:
        return AveragedOptimizers(network, optimizers, train.ema, start)
    if not train.optimizer.averages:
        return optimizers
    made: Optimizers = load(SCHEDULE_FREE, kind="average")(network, optimizers)
    return made


def moved_share(section: EmaSection, moves: int) -> float:
    """Returns the share of the way to the weights that an average goes which has moved so often.

    ``unbiased`` is Adam's correction (Kingma and Ba, 2015, arXiv 1412.6980, section 3): the average is the mean of the
    weights it saw, each with ``decay`` times the weight of the next one. ``ramp`` is ``num_updates`` of TensorFlow's
    ``tf.train.ExponentialMovingAverage``.
    """
    if section.early == "unbiased":
        return (1.0 - section.decay) / (1.0 - section.decay ** (moves + 1))
    if section.early == "ramp":
        return 1.0 - min(section.decay, (1.0 + moves) / (10.0 + moves))
    return 1.0 - section.decay


class AveragedOptimizers(Optimizers):
    """Other optimizers, and the average beside them."""

    def __init__(self, network: Network, inner: Optimizers, section: EmaSection, start: int) -> None:
        """Begin with the network's weights.

        Args:
            network: this process's part of it.
            inner: over its parameters.
            section: of the recipe.
            start: steps of the run before the average begins.
        """
        self._inner, self._section, self._start = inner, section, start
        self.members = inner.members
        self._network = network
        self._weights: dict[str, Tensor] = dict(network.trained())
        exact = {name: torch.promote_types(weight.dtype, torch.float32) for name, weight in self._weights.items()}
        self._averages = {name: weight.detach().to(exact[name], copy=True) for name, weight in self._weights.items()}
        self._steps = 0
        self._local = local_of(self._weights.values())

    def step(self, share: float) -> None:
        """Update every parameter, then move the average where it is its turn."""
        self._inner.step(share)
        self._count()

    def leave_out(self) -> None:
        """Move the average where it is its turn, and update nothing."""
        self._inner.leave_out()
        self._count()

    def _count(self) -> None:
        self._steps += 1
        since = self._steps - self._start
        if since == 0:
            self._move(1.0)
        elif since > 0 and since % self._section.every_steps == 0:
            self._move(moved_share(self._section, since // self._section.every_steps - 1))

    @torch.no_grad()
    def _move(self, share: float) -> None:
        averages = [self._local(average) for average in self._averages.values()]
        weights = [self._local(weight) for weight in self._weights.values()]
        exact = [weight.to(average.dtype) for weight, average in zip(weights, averages, strict=True)]
        torch._foreach_lerp_(averages, exact, share)

    def zero_grad(self) -> None:
        """Drop every gradient."""
        self._inner.zero_grad()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields every state tensor with its name, the average among them: the weights before it begins."""
        yield from self._inner.tensors()
        for name, average in self._averages.items():
            yield f"{name}.{AVERAGE}", average if self._begun else self._weights[name].detach()
            yield f"{name}.{UPDATES}", torch.tensor(self._steps)

    def on_device(self) -> Iterator[Tensor]:
        """Yields the state tensors that take memory of the network's device."""
        yield from self._inner.on_device()
        yield from self._averages.values()

    def load(self, tensors: dict[str, Tensor], part: Callable[[Tensor, Tensor], Tensor] = moved) -> None:
        """Take over state tensors by name, as ``Optimizers`` does."""
        rest = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in (AVERAGE, UPDATES)}
        self._inner.load(rest, part)
        with torch.no_grad():
            for name, average in self._averages.items():
                found = part(self._weights[name], tensors[f"{name}.{AVERAGE}"])
                self._local(average).copy_(self._local(found))
                self._steps = int(tensors[f"{name}.{UPDATES}"])

    def result(self) -> AbstractContextManager[None]:
        """Returns a context within which the network has the averaged weights, if they are used."""
        return self._averaged() if self.result_is_average else nullcontext()

    @property
    def result_is_average(self) -> bool:
        """Returns whether the weights of ``result`` are averaged: they are used, and the average has begun."""
        return self._begun and self._section.use

    @property
    def _begun(self) -> bool:
        return self._steps >= self._start

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Gives the network the averaged weights, which take no more room than the gradients that are gone."""
        trained = [self._local(weight.detach()).clone() for weight in self._weights.values()]
        give(self._network, self._weights.values(), map(self._local, self._averages.values()))
        try:
            yield
        finally:
            give(self._network, self._weights.values(), trained)
