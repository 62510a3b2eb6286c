"""Learns from runs that were measured: on one device and stack errors are alike, more so for runs of like shape.

The logarithm of measured over predicted is a Gaussian process over shapes (Rasmussen and Williams, 2006, chapter 2): a
bias that all runs on that device and stack share, and a part that fades with the distance between shapes. One
reference run moves predictions near it most, and distant ones by what the bias is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.planner.parameters import active_parameters
from trainwright.planner.predict.forecast import Forecast
from trainwright.planner.predict.layouts import RECOMPUTES
from trainwright.planner.predict.request import Request
from trainwright.planner.predict.step import StepTable

BIAS, UNKNOWN_BIAS = 0.05, 0.25
"""Standard deviation of what all runs share: of a stack that published runs were fitted to, and of one without."""
SHAPE, REACH = 0.20, 0.5
"""Standard deviation of what depends on shape, and the distance over which it fades (see ``place``): with a longer
reach one row of a published table made others of its source worse (``audit --calibrate first``)."""
NOISE = 0.02
"""Equal machines differ so much (median of published pairs)."""
BELIEVED = 2.0
"""Standard deviations: a run that is off by more was measured or set up otherwise, and counts as off by so much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A run with the logarithms of measured over predicted tokens per second and peak memory; None: not measured."""

    request: Request
    log_speed: float | None
    log_memory: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """Factors for a prediction; ``known`` is how much of the uncertainty the references take away, 0 to 1."""

    speed: float = 1.0
    memory: float = 1.0
    known: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """What is thought of the logarithm of measured over predicted before any run is known: standard deviations.

    ``bias`` is shared by all runs, ``shape`` fades with distance, ``noise`` is a run's own; values beyond ``believed``
    of them are cut there.
    """

    bias: float
    shape: float = SHAPE
    noise: float = NOISE
    believed: float = BELIEVED

    @property
    def deviation(self) -> float:
        """Of a prediction before any run is known."""
        return math.hypot(self.bias, self.shape)


def correction(request: Request, references: Sequence[Reference]) -> Correction:
    """What measured runs on the same device and stack say about a prediction."""
    like = [reference for reference in references if alike(reference.request, request)]
    speed, known = expected(request, [(each.request, each.log_speed) for each in like], _prior(request, "time"))
    memory, _ = expected(request, [(each.request, each.log_memory) for each in like], _prior(request, "memory"))
    return Correction(speed=math.exp(speed), memory=math.exp(memory), known=known)


def place(request: Request) -> NDArray[np.float64]:
    """Where a run lies among others: natural logarithms of sizes and degrees, and units for what it does else."""
    work, layout, model = request.workload, request.parallel, request.model
    tokens = layout.micro_batch_sequences * work.sequence_tokens / (layout.tp * layout.cp)
    return np.array([
        math.log(active_parameters(model)) / 2, math.log(work.sequence_tokens) / 2, math.log(tokens) / 2,
        math.log(request.cluster.devices) / 2, math.log(layout.tp), math.log(layout.pp), math.log(layout.ep),
        RECOMPUTES.index(work.recompute), 0.0 if work.adapter is None else 2.0,
        ("fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4").index(work.precision),
        0.1 * layout.compile, 0.25 * (work.optimizer == "muon"),
    ])  # fmt: skip


def alike(one: Request, other: Request) -> bool:
    """Whether a run says something about another: on the same device and stack."""
    return one.cluster.device.name == other.cluster.device.name and one.stack.time_of == other.stack.time_of


def _prior(request: Request, part: str) -> Prior:
    fitted = request.stack.fit.get(part, {}).get("rows", 0)
    return Prior(bias=BIAS if fitted else UNKNOWN_BIAS)


def expected(request: Request, known: Sequence[tuple[Request, float | None]], prior: Prior) -> tuple[float, float]:
    """Mean of the process at a request, and the share of its variance that is explained."""
    runs = [(place(other), value) for other, value in known if value is not None]
    if not runs:
        return 0.0, 0.0
    places, values = np.array([spot for spot, _ in runs]), np.array([value for _, value in runs])
    limit = prior.believed * prior.deviation
    values = np.clip(values, -limit, limit)
    among = _covariance(places[:, None], places[None], prior) + prior.noise**2 * np.eye(len(runs))
    here = _covariance(places, place(request)[None], prior)
    weights = np.linalg.solve(among, here)
    return float(weights @ values), float(weights @ here / prior.deviation**2)


def _covariance(one: NDArray[np.float64], other: NDArray[np.float64], prior: Prior) -> NDArray[np.float64]:
    distance = np.sqrt(((one - other) ** 2).sum(axis=-1))
    return np.asarray(prior.bias**2 + prior.shape**2 * np.exp(-distance / REACH))


def corrected(found: Forecast, learnt: Correction) -> Forecast:
    """The forecast with what measured runs say; the range of its time is narrower by what they explain.

    Seconds of all phases are scaled alike. Of memory, what is kept of weights, gradients and moments is certain: what
    is left of the peak takes the difference.
    """
    step = StepTable(**{field.name: getattr(found.step, field.name) / learnt.speed for field in fields(found.step)})
    memory, total = found.memory, found.memory.device_bytes
    loose = ("activations", "logits", "communication", "workspace", "reserved_unused")
    spare = np.add.reduce([getattr(memory, name) for name in loose])
    factor = np.maximum(0.0, 1 + (learnt.memory - 1) * total / np.maximum(spare, 1.0))
    left = math.sqrt(max(0.0, 1 - learnt.known))
    return replace(
        found, step=step, spread=found.spread * left,
        memory=replace(memory, **{name: getattr(memory, name) * factor for name in (*loose, "stuck")}),
    )  # fmt: skip
