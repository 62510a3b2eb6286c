"""``DryRun``: what each rank of a layout keeps and sends in one step, counted on no device beside what is planned."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.core.frozen import dataclass
from trainwright.spec.summary import ParameterGroup
from trainwright.spec.workload import ParallelPlan

CLASSES = ("weights", "gradients", "optimizer", "activations", "communication")
"""Of memory: ``activations`` are all tensors of a pass, logits and temporaries too; ``communication`` is what is
gathered, and what waits for its reduction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """Messages of one kind that a rank takes part in along one axis, in one step.

    Bytes are those of the whole tensor: what an all-gather ends with, what a reduce-scatter or an all-reduce starts
    from; of a send what one rank holds.
    """

    kind: str
    axis: str
    count: int
    size_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What a rank keeps of a parameter."""

    whole: tuple[int, ...]
    local: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRank:
    """One rank, and how many are like it; bytes by ``CLASSES`` at the peak of its step."""

    rank: int
    alike: int
    shares: Mapping[str, Share]
    memory: Mapping[str, float]
    planned_memory: Mapping[str, float]
    sent: tuple[Sent, ...]
    planned_sent: tuple[Sent, ...]

    def ratios(self) -> dict[str, float | None]:
        """Returns counted over planned bytes of each class and of all; None where one side alone has any."""
        sides = [{**each, "total": sum(each.values())} for each in (self.memory, self.planned_memory)]
        return {name: ratio(sides[0][name], sides[1][name]) for name in (*CLASSES, "total")}


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRun:
    """A step of ``passes`` micro batches of the plan's ``micro_batches``: what a further one adds is the second's."""

    parallel: ParallelPlan
    device: str
    passes: int
    micro_batches: int
    ranks: tuple[DryRank, ...]
    notes: tuple[str, ...] = ()
    groups: tuple[ParameterGroup, ...] = ()
    """Who gets what, where the recipe has groups of parameters."""


def ratio(counted: float, planned: float) -> float | None:
    """Returns one number over the other: 1 where both are none, None where one alone is."""
    if counted and planned:
        return counted / planned
    return None if counted or planned else 1.0
