"""``PhaseTimes`` and ``MemoryUse``: filled by the planner and by the trainer alike, so that they can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Self

from trainwright.core.frozen import dataclass

BESIDE_STEPS = ("compile", "checkpoint", "evaluate")
"""Phases that come now and then, and are no part of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Partition:
    """Named non-negative parts of a whole."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the parts in their order."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def from_mapping(cls, parts: Mapping[str, float]) -> Self:
        """Parts by name; an absent part is zero.

        Raises:
            KeyError: a name that is no part of this whole.
        """
        unknown = set(parts) - set(cls.names())
        if unknown:
            raise KeyError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
        return cls(**parts)

    def as_dict(self) -> dict[str, float]:
        """Parts by name, in their order."""
        return {name: getattr(self, name) for name in self.names()}


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTimes(_Partition):
    """Seconds of each phase; they partition the step (or the run) and sum to it.

    ``communicate`` is what a rank waits for others: exposed communication, and the bubble of a pipeline; what overlaps
    with compute costs nothing here. ``compile``, ``checkpoint`` and ``evaluate`` stand beside the steps: a step of a
    run has the other phases.
    """

    data_wait: float = 0.0
    preprocess: float = 0.0
    host_to_device: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    communicate: float = 0.0
    update: float = 0.0
    compile: float = 0.0
    checkpoint: float = 0.0
    evaluate: float = 0.0
    other: float = 0.0

    @property
    def total_s(self) -> float:
        """Returns seconds of the whole."""
        return sum(self.as_dict().values())

    @property
    def of_steps(self) -> PhaseTimes:
        """Returns the phases of steps alone, without those that stand beside them."""
        return replace(self, **dict.fromkeys(BESIDE_STEPS, 0.0))

    def scaled(self, factor: float) -> PhaseTimes:
        """Returns every phase times ``factor``."""
        return PhaseTimes(**{name: value * factor for name, value in self.as_dict().items()})


STEP_PHASES = tuple(name for name in PhaseTimes.names() if name not in (*BESIDE_STEPS, "other"))
"""Phases that each step has and that have a name of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse(_Partition):
    """Bytes at the peak, by class. ``workspace`` is libraries and temporaries, and on a CPU the process itself."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    communication: float = 0.0
    workspace: float = 0.0
    reserved_unused: float = 0.0

    @property
    def total_bytes(self) -> float:
        """Returns bytes of the whole."""
        return sum(self.as_dict().values())
