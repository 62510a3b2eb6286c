"""``World``: the processes that train one network together, as the trainer's loop sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.artifact.stage import Context
from trainwright.core.registry import load
from trainwright.model.network import Network
from trainwright.model.tasks.task import Evaluation, EvaluationOptions, Task
from trainwright.runtime.timing.clock import PhaseClock, Position
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.plan import Plan
from trainwright.stages.train.metrics import TrainingMetrics
from trainwright.stages.train.step import TrainingStep

if TYPE_CHECKING:
    from trainwright.stages.train.ranks.several.meeting import Meeting

COMPILATION = "trainwright.runtime.timing.compilation:compilation_counted"

Follow = Callable[[Callable[[], Position]], None]


def _unfollowed(where: Callable[[], Position]) -> None:
    """Nobody watches a process alone."""


class World:
    """A world of one process; ``ranks.world`` has the one of several, which is loaded where a layout asks for it."""

    leads: bool = True
    """Whether this process writes what is written once, and tells people."""
    ranks: int = 1
    rank: int = 0
    layout: Mapping[str, int] = {}
    """The axes along which more than one process trains."""
    follow: Follow = staticmethod(_unfollowed)
    """Is told how to see where training stands."""

    def share(self, network: Network, *, compiled: bool) -> None:
        """Turns a whole network into this process's part of it, in place."""

    def give_memory(self, network: Network, device: torch.device) -> None:
        """Moves what this process has of a network to a device; parameters without memory get some, and no values."""
        # As torch's to_empty does, which would leave buffers without their values too.
        network._apply(lambda each: torch.empty_like(each, device=device) if each.is_meta else each.to(device))  # noqa: SLF001

    def rows(self, sequences: int) -> range | None:
        """Returns which sequences of a batch this process reads; None: all of them."""
        return None

    def step(self, *arguments: Any, **options: Any) -> TrainingStep:
        """Returns what makes one update, with the arguments of ``TrainingStep``."""
        return TrainingStep(*arguments, **options)

    def counted(self, network: Network, clock: PhaseClock, *, compiled: bool) -> AbstractContextManager[Any]:
        """Returns a context in which compilation, and what ranks wait for each other, are phases of their own."""
        return load(COMPILATION, kind="clock")(clock) if compiled else nullcontext()

    def agreed(self, since_s: float, cause: str | None, *, saved: bool) -> tuple[float, str | None]:
        """Returns what all processes act on: seconds since the last checkpoint, and what stops them, if anything.

        Args:
            since_s: of this process.
            cause: what stops this process, one of ``stop.ERRORS``.
            saved: the step before was saved, which is true of all processes or of none.
        """
        return since_s, cause

    def compare(self, step: int, times: PhaseTimes, metrics: TrainingMetrics) -> None:
        """Tells how far the ranks are apart, and which of them is the slowest; every process must call it together.

        Args:
            step: updates done so far.
            times: seconds since the last call, by phase.
            metrics: where to tell it.
        """

    def gathered(self, value: Any) -> list[Any]:
        """Returns what every process gives, by its number; all must ask together."""
        return [value]

    def evaluate(self, task: Task, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Returns what a task measures on a split; every process must ask, and each has the result."""
        return task.evaluate(network, split, options)

    def beside(self) -> Callable[[Any], list[Any]]:
        """Returns ``gathered`` for one thread beside training; all processes must ask for it together."""
        return self.gathered

    def whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yields tensors with their names, whole, and the leading process all; every process must ask together."""
        yield from tensors

    def placement(self, name: str, tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns a tensor's whole shape, and where in it this process's part begins, which ``local`` yields.

        Args:
            name: of a parameter, or ``<parameter>.<state>``.
            tensor: this process's.
        """
        return tuple(tensor.shape), (0,) * tensor.ndim

    def laid_out(self, like: Tensor, part: Tensor) -> Tensor:
        """Returns this process's part of a tensor as one that is laid out as ``like``, where it has its shape."""
        return part.to(like.device)

    def local(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yields what of each tensor lies in this process's memory."""
        yield from tensors


Work = Callable[[Context, Plan, World], Any]
"""What one process does of a training: all of it, or a part that is looked at."""
ALONE = World()
MEETING: ContextVar[Meeting | None] = ContextVar("meeting", default=None)
"""Where this command trains with others; None: it does so alone."""
"""How many commands train together; ``ranks.several.together`` sets it."""
