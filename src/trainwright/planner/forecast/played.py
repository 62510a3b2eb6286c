"""The forecast of one layout with its pipeline played out: the times that a plan tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.forecast.time.bubble import idle_s


def played(one: Forecast) -> Forecast:
    """Returns the forecast [1] with the stages of its pipeline as unequal as they are; the same where there is none.

    Thousands of layouts are compared with all stages equal (``bubble.closed_form_s``).
    """
    idle = idle_s(one.run, one.source, one.kernels, one.sent, one.layouts)
    return one if idle is None else replace(one, step=replace(one.step, idle=np.array([idle])))


def moved_slowdown(one: Forecast) -> float:
    """Returns a played layout's seconds over those of the same layout with all of it on the device, were there room.

    What leaves the device makes room for larger micro batches; that they are worth more than what they wait, no
    measured run shows.
    """
    work = replace(one.run.workload, paged_moments=False, activation_offload=False)
    stays = replace(one.layouts, offload=np.zeros_like(one.layouts.offload))
    there = played(forecast(replace(one.run, workload=work), stays, one.source))
    return float(one.step_s[0] / there.step_s[0])
