"""A run whose batch grows: its mean step, from the steps of each size."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.forecast.forecast import Forecast, forecast
from trainwright.planner.forecast.played import played
from trainwright.planner.forecast.time.step import StepTable


def mean_step(full: Forecast) -> Forecast:
    """Returns the forecast of a run's mean step; of one whose batch does not grow it is that of each.

    Seconds of each phase, and the sequences, are means over all updates of the run, so that times their number they are
    sums over the sizes. Memory is of the largest batch.
    """
    work, layouts = full.run.workload, full.layouts
    if not work.ramp:
        return full
    parts = list(work.sizes.parts(work.steps))
    sizes = [part.batch_tokens // work.sequence_tokens for part in parts]
    shares = [part.steps / work.steps for part in parts]
    pace = full.step.forward / forecast(full.run, layouts, full.source, memory=full.memory).step.forward
    steps = [full.step if size == work.batch_sequences else _step(full, size, pace) for size in sizes]

    def mean(values: list[Numbers]) -> Numbers:
        return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))

    each = {field.name: mean([getattr(step, field.name) for step in steps]) for field in fields(StepTable)}
    sequences = np.full_like(layouts.batch_sequences, np.dot(shares, sizes))
    return replace(full, step=StepTable(**each), layouts=replace(layouts, batch_sequences=sequences))


def _step(full: Forecast, sequences: int, pace: Numbers) -> StepTable:
    """Returns the step of a smaller batch in the same layouts; a single pipeline is played out.

    ``pace`` is what measured runs lengthen all phases by (``forecast.corrected``).
    """
    size = np.full_like(full.layouts.batch_sequences, sequences)
    most = size / full.layouts.data_parallel  # a micro batch that is always the whole batch, as batch norms need it
    layouts = replace(full.layouts, batch_sequences=size, micro_batch=np.minimum(full.layouts.micro_batch, most))
    other = forecast(full.run, layouts, full.source, memory=full.memory)
    step = played(other).step if len(layouts) == 1 else other.step
    return StepTable(**{field.name: pace * getattr(step, field.name) for field in fields(StepTable)})
