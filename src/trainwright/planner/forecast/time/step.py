"""Seconds of one training step, phase by phase: a rank's passes, the pipeline's bubble, the update and the exchange."""

from __future__ import annotations

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.kernels import Exposure, Kernels
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.forecast.communication.exchange import Exchange
from trainwright.planner.forecast.time.bubble import closed_form_s
from trainwright.planner.forecast.time.passes import longer, passes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTable:
    """Arrays [L] of seconds of one step; they sum to ``total_s``.

    ``forward`` and ``backward`` are kernels alone, recomputation counting as backward; ``communicate`` is what is
    exposed; ``host`` is waiting for the host to launch kernels, ``idle`` the pipeline's bubble.
    """

    forward: Numbers
    backward: Numbers
    communicate: Numbers
    update: Numbers
    host: Numbers
    idle: Numbers

    @property
    def total_s(self) -> Numbers:
        """Returns the seconds of the step."""
        return self.forward + self.backward + self.communicate + self.update + self.host + self.idle


def combine(kernels: Kernels, sent: Exchange, layouts: Layouts, exposure: Exposure) -> StepTable:
    """Returns the seconds of a step; the pipeline's bubble as if all stages were equal."""
    each, count = passes(kernels, sent, layouts, exposure), layouts.micro_batches
    met = sent.met(exposure.link, exposure.bus_sharing)
    once = exposure.gradients * met.gradients_s
    behind = exposure.overlap * sent.overlapped * each.backward
    return StepTable(
        forward=count * each.forward,
        backward=count * each.backward + (count - 1) * kernels.accumulate,
        host=count * each.host,
        communicate=count * each.exposed + longer(once, behind) - behind + met.matrices_s,
        update=kernels.update + 0.0 * count,
        idle=closed_form_s(layouts, each) * exposure.bubble,
    )


def evaluated_s(kernels: Kernels, step: StepTable) -> Numbers:
    """Returns the seconds [L] of a validation on as many tokens as a step trains on: forward passes alone.

    The forward phase without what the head's gradients take, where the source tells that; else the forward share of all
    of the step.
    """
    if kernels.head_evaluated is None:
        return np.asarray(step.total_s * (step.forward / (step.forward + step.backward)))
    trained = kernels.forward + kernels.head
    return np.asarray(step.forward * (kernels.forward + kernels.head_evaluated) / trained)
