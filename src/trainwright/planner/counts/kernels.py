"""What a forecast asks of a source of rates: seconds of kernels on a device, and what software makes of communication.

A source turns counted work into these; the forecast puts them together with what is sent, waited for and kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, get_args

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.process import Process
from trainwright.spec.run import RunSpec

Kind = Literal["products", "attention", "between", "head", "launches", "update"]
"""Kinds of work on a device: the blocks' matrix products, attention, memory traffic between the products, the output
head with the loss, launching kernels from the host, and the optimizer's update."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kernels:
    """Seconds [L] of one micro batch on the slowest rank, unless a field says otherwise.

    ``forward`` and ``backward`` are the blocks' passes without recomputation, ``head`` and ``head_backward`` those of
    output head and loss. ``weight`` is the part of ``backward`` that makes gradients of weights. ``again`` is the share
    of ``forward`` that selective recomputation repeats. ``casts`` of weights count as backward. ``launches`` is what
    the host needs to launch one forward pass, 0 where the kernels' seconds contain it. ``accumulate`` adds the
    gradients of a further micro batch to those before; ``update`` is one update of the optimizer.
    """

    forward: Numbers
    backward: Numbers
    weight: Numbers
    head: Numbers
    head_backward: Numbers
    update: Numbers
    casts: Values = 0.0
    launches: Values = 0.0
    accumulate: Values = 0.0
    again: Values = 0.0
    remade: Values = 0.0
    """Seconds of what software makes again where no whole blocks are."""
    recomputed: Values = 1.0
    """Share of the blocks that are computed again, where blocks are."""
    pace: Values = 1.0
    """Multiplies all seconds of kernels but the update's, once they are put together."""
    lighter: Values = 0.0
    """Share of its blocks that the pipeline rank with the head has fewer than the slowest one."""
    lighter_ends: Values = 0.0
    """The same of first and last stage together, which one rank of a bidirectional pipeline has."""
    head_evaluated: Numbers | None = None
    """Head and loss without gradients, as in a validation; None: as ``head``."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exposure:
    """What of communication is seen in a step, as factors of the seconds that each kind takes alone.

    ``link`` multiplies what is sent over a bus, ``bus_sharing`` is the power of the devices on it that it grows with;
    ``sharded`` is the share of FSDP's seconds by which kernels beside it are slower, ``unhidden`` multiplies them where
    software does nothing beside it;
    ``overlap`` is the share of a backward pass that hides the exchange of gradients, where software does both at once;
    ``bubble`` is the share of a schedule's idle time that is really idle.
    """

    link: Values
    bus_sharing: Values
    tensor: Values
    context: Values
    expert: Values
    sharded: Values
    unhidden: Values
    gradients: Values
    overlap: Values
    bubble: Values


class RateSource(Protocol):
    """Rates of one device of a run's cluster: from the catalogue, from probes, or corrected by finished runs."""

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of kernels of each layout, as if there were no work of the kinds in ``without``.

        Raises:
            RecipeError: no rate is known for what the run asks of the device.
        """

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns what the run's software makes of communication."""

    def process(self, run: RunSpec) -> Process | None:
        """Returns what a training process holds beside tensors; None where the stack's file says it."""

    def spread(self, run: RunSpec) -> float:
        """Returns the standard deviation of the logarithm of measured over predicted seconds of a step."""

    def beyond(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns the deviation [L] that is added to it for lengths, steps and sizes unlike those of measured runs."""
