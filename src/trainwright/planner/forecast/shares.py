"""What a step would be shorter by without one kind of work, and without one kind of communication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trainwright.planner.counts.kernels import Kind
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.padded import kernels_of
from trainwright.planner.forecast.time.step import StepTable, combine
from trainwright.spec.plan import Share

COMPUTE: Mapping[str, Kind] = {
    "matrix products of the blocks": "products",
    "attention": "attention",
    "memory traffic between the products": "between",
    "the output head and the loss": "head",
    "launching kernels from the host": "launches",
    "the optimizer's update": "update",
}
"""Kinds of work on a device, in words."""
SENT: Mapping[str, tuple[str, ...]] = {
    "tensor parallelism": ("tensor",),
    "context parallelism": ("context",),
    "expert parallelism": ("expert",),
    "pipeline sends": ("pipeline",),
    "sharded weights and gradients": ("gather", "scatter"),
    "gradients once a step": ("gradients",),
    "matrices of Muon's update": ("matrices",),
}
"""Kinds of communication, and which of ``exchange.KINDS`` are theirs."""
IDLE = "the pipeline's idle time"
"""What of a step's ``communicate`` is a wait for another stage."""
COPIED = "activations to host memory and back"
"""Communication over the link to host memory."""
TOGETHER = ("expert parallelism", "pipeline sends")
"""What bidirectional pipelines hide together."""


def work_shares(forecast: Forecast) -> tuple[Share, ...]:
    """Returns each kind of work by the seconds that the step would be shorter without it."""
    forecast = bound_by(forecast, lambda step: step.total_s)
    whole, pace = step_without(forecast), _pace(forecast)
    without = {name: step_without(forecast, kind) for name, kind in COMPUTE.items()}
    seconds = {name: pace * float((whole.total_s - step.total_s)[0]) for name, step in without.items()}
    seconds["exposed communication"] = float(forecast.step.communicate[0])
    seconds[IDLE] = float(forecast.step.idle[0])
    place = "offload to NVMe" if forecast.layouts.offloads_to_nvme[0] else "offload to the host"
    seconds[place] = float(forecast.step.update[0] - pace * whole.update[0])
    return tuple(sorted(_real(seconds, forecast), key=lambda share: -share.seconds))


def _pace(forecast: Forecast) -> float:
    """Returns the factor by which measured runs lengthen all phases; see ``forecast.corrected``."""
    whole = step_without(forecast)
    return float(forecast.step.forward[0] / whole.forward[0])


def exposed(forecast: Forecast) -> tuple[Share, ...]:
    """Returns each kind of communication by what the step would be shorter by without it, but for idle time.

    What is hidden together, and stands out together, is divided as each would stand out alone.
    """
    saved = {kind: _saved_s(forecast, *each) for kind, each in SENT.items()}
    apart = sum(saved[kind] for kind in TOGETHER)
    joint = _saved_s(forecast, *(each for kind in TOGETHER for each in SENT[kind])) / apart if apart > 0 else 1.0
    pace = _pace(forecast)
    seconds = {kind: pace * saved[kind] * (joint if kind in TOGETHER else 1.0) for kind in saved}
    whole = step_without(forecast)
    seconds[COPIED] = float(forecast.step.communicate[0] - pace * whole.communicate[0])
    return tuple(_real(seconds, forecast))


def _saved_s(forecast: Forecast, *kinds: str) -> float:
    """Returns the seconds of communication that the step would be spared without these of ``exchange.KINDS``."""
    whole = step_without(forecast).communicate
    names = (f"{kind}{over}" for kind in kinds for over in ("_s", "_out_s"))
    nothing: dict[str, Any] = dict.fromkeys(names, np.zeros_like(forecast.step_s))
    without = combine(forecast.kernels, replace(forecast.sent, **nothing), forecast.layouts, forecast.exposure)
    return float((whole - without.communicate)[0])


def step_without(forecast: Forecast, *kinds: Kind) -> StepTable:
    """Returns the step if there were no work of these kinds, and none that the forecast leaves out already."""
    kinds = (*kinds, *forecast.without)
    kernels = kernels_of(forecast.source, forecast.run, forecast.layouts, without=kinds) if kinds else forecast.kernels
    return combine(kernels, forecast.sent, forecast.layouts, forecast.exposure)


def bound_by(forecast: Forecast, seconds: Callable[[StepTable], Numbers]) -> Forecast:
    """Returns the forecast without its head where that takes none of these ``seconds``.

    A rank that has the head and fewer blocks may be no slower than the others; then only their work counts.
    """
    if not np.array_equal(seconds(step_without(forecast, "head")), seconds(step_without(forecast))):
        return forecast
    headless: tuple[Kind, ...] = ("head",)
    kernels = kernels_of(forecast.source, forecast.run, forecast.layouts, without=headless)
    return replace(forecast, kernels=kernels, without=headless)


def _real(seconds: Mapping[str, float], forecast: Forecast) -> Iterator[Share]:
    """Yields the shares that are above nothing."""
    least = 1e-9 * float(forecast.step_s[0])
    return (Share(name=name, seconds=value) for name, value in seconds.items() if value > least)
