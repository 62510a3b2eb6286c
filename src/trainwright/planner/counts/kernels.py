"""What a source of rates answers: seconds of kernels on one device, and what software makes of communication.

A source turns counted work into these; the forecast puts them together with what is sent, waited for and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trainwright.planner.counts.layouts import Numbers

Value = float | Numbers
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
    casts: Value = 0.0
    launches: Value = 0.0
    accumulate: Value = 0.0
    again: Value = 0.0
    pace: Value = 1.0
    """Multiplies all seconds of kernels but the update's, once they are put together."""
    lighter: Value = 0.0
    """Share of its blocks that the pipeline rank with the head has fewer than the slowest one."""
    lighter_ends: Value = 0.0
    """The same of first and last stage together, which one rank of a bidirectional pipeline has."""
    head_evaluated: Numbers | None = None
    """Head and loss without gradients, as in a validation; None: as ``head``."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exposure:
    """What of communication is seen in a step, as factors of the seconds that each kind takes alone.

    ``link`` multiplies all that is sent, ``bus_sharing`` is the power of the devices on one bus that it grows with;
    ``bubble`` is the share of a schedule's idle time that is really idle.
    """

    link: Value
    bus_sharing: Value
    tensor: Value
    context: Value
    expert: Value
    sharded: Value
    gradients: Value
    bubble: Value
