"""Seconds of one micro batch's passes on the slowest rank: kernels, and what of communication nothing hides.

Sums that stand for "the longer of the two" are fourth-power means: work that overlaps perfectly when one side is much
longer costs a little of both when they are equal.
"""

from __future__ import annotations

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import Exposure, Kernels
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.forecast.communication.exchange import Exchange


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Passes:
    """Arrays [L] of seconds of one micro batch on one rank.

    ``forward`` and ``backward`` are kernels, recomputation and casts counting as backward, and ``weight`` is that part
    of the latter which makes gradients of weights; ``host`` is waiting for launches, ``exposed`` communication that
    nothing hides, ``sends`` that part of it which goes to another pipeline stage and back. ``hidden`` is what a
    bidirectional pipeline does not wait for, because it computes the other direction's micro batch meanwhile.
    """

    forward: Numbers
    backward: Numbers
    weight: Numbers
    host: Numbers
    exposed: Numbers
    sends: Numbers
    hidden: Numbers

    @property
    def total(self) -> Numbers:
        """Returns the seconds that a rank spends on one micro batch."""
        return self.forward + self.backward + self.host + self.exposed


def passes(kernels: Kernels, sent: Exchange, layouts: Layouts, exposure: Exposure) -> Passes:
    """Returns the seconds of one micro batch.

    The slowest rank has the head, unless it has so many fewer blocks that it is faster than the others all the same. In
    a bidirectional pipeline a rank has first and last stage, or two between, for half of the micro batches each;
    forward and backward passes of the two run together, so that what one sends the other hides (DualPipe: arXiv
    2412.19437, section 3.2.1).
    """
    both = layouts.has("schedule", "dualpipe")
    ends = np.where(both, 0.5, 1.0)
    fewer = np.where(both, kernels.lighter_ends, kernels.lighter)
    blocks, returned = kernels.forward, kernels.backward
    forward = blocks + np.maximum(0.0, ends * kernels.head - fewer * blocks)
    backward = returned + np.maximum(0.0, ends * kernels.head_backward - fewer * returned)
    whole, selective = layouts.has("recompute", "full"), layouts.has("recompute", "selective")
    full = whole * kernels.recomputed
    again = kernels.recomputed * np.where(whole, blocks, np.where(selective, kernels.again * blocks, 0.0))
    again = again + (1 - full) * kernels.remade
    seconds = forward + backward + again + kernels.casts
    host = np.asarray(kernels.launches * (3 + full))
    busy = longer(seconds, host)
    sent = sent.met(exposure.link, exposure.bus_sharing)
    parallel = exposure.tensor * sent.tensor_s + exposure.context * sent.context_s
    parallel = parallel + np.where(both, 0.0, exposure.expert * sent.expert_s)
    weights = 2 * sent.gather_s + sent.scatter_s
    sends = 2 * sent.pipeline_s
    beside: Numbers = np.asarray((2 + full) * sent.expert_s + sends)
    waited = np.where(both, longer(beside, busy) - busy, sends) if both.any() else sends
    exposed = (2 + full) * parallel + waited + _sharded_s(weights, busy, sent.shards_overlapped, exposure)
    return Passes(
        forward=kernels.pace * forward,
        backward=kernels.pace * (backward + again + kernels.casts),
        weight=kernels.pace * kernels.weight,
        host=kernels.pace * (busy - seconds),
        exposed=exposed,
        sends=np.where(both, 0.0, sends),
        hidden=np.where(both, beside - waited, 0.0),
    )


def _sharded_s(seconds: Numbers, busy: Numbers, overlapped: Values, exposure: Exposure) -> Numbers:
    """Returns what sending sharded weights and gradients adds to ``busy``.

    Behind kernels it takes processors and memory bandwidth from them: they are slower by a share of its seconds, and
    what is longer than all of them is waited for.
    """
    beside = longer(seconds, busy + exposure.sharded * seconds) - busy
    return np.where(np.asarray(overlapped) > 0, beside, exposure.unhidden * seconds)


def longer(one: Values, other: Values) -> Numbers:
    """Returns the fourth-power mean of two times: nearly the longer one."""
    square, other_square = one * one, other * other
    return np.asarray(np.sqrt(np.sqrt(square * square + other_square * other_square)))
