"""``World``: the processes that train one network together, as the trainer's loop sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.model.network import Network
from trainwright.model.tasks.task import Evaluation, EvaluationOptions, Task
from trainwright.stages.train.step import TrainingStep

Position = tuple[int, str, object]
"""Updates made, the phase, and something that changes with each phase."""
Follow = Callable[[Callable[[], Position]], None]


def _unfollowed(where: Callable[[], Position]) -> None:
    """Nobody watches a process alone."""


class World:
    """A world of one process; ``ranks.world`` has the one of several, which is loaded where a layout asks for it."""

    leads: bool = True
    """Whether this process writes what is written once, and tells people."""
    ranks: int = 1
    follow: Follow = staticmethod(_unfollowed)
    """Is told how to see where training stands."""

    def share(self, network: Network, *, compiled: bool) -> None:
        """Turns a whole network into this process's part of it, in place."""

    def rows(self, sequences: int) -> range | None:
        """Returns which sequences of a batch this process reads; None: all of them."""
        return None

    def step(self, *arguments: Any, **options: Any) -> TrainingStep:
        """Returns what makes one update, with the arguments of ``TrainingStep``."""
        return TrainingStep(*arguments, **options)

    def agreed(self, since_s: float, signal: str | None) -> tuple[float, str | None]:
        """Returns what all processes act on: seconds since the last checkpoint, and a signal to stop, if any."""
        return since_s, signal

    def gathered(self, value: Any) -> list[Any]:
        """Returns what every process gives, by its number; all must ask together."""
        return [value]

    def evaluate(self, task: Task, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Returns what a task measures on a split; every process must ask, and each has the result."""
        return task.evaluate(network, split, options)

    def names(self, names: Iterable[str]) -> set[str]:
        """Returns these names and those that other processes have of the same network."""
        return set(names)

    def whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yields tensors with their names, whole, and the leading process all; every process must ask together."""
        yield from tensors

    def part(self, like: Tensor, value: Tensor) -> Tensor:
        """Returns this process's part of a whole tensor that is laid out as ``like``."""
        return value.to(like.device)

    def local(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yields what of each tensor lies in this process's memory."""
        yield from tensors


ALONE = World()
COMMANDS: ContextVar[int] = ContextVar("commands", default=1)
"""How many commands train together; ``ranks.together`` sets it."""
