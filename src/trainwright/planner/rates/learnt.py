"""Learns from runs that were measured: on one device and stack errors are alike, more so for runs of like shape.

The logarithm of measured over predicted is a Gaussian process over shapes (Rasmussen and Williams, 2006, chapter 2): a
bias that all runs on that device and stack share, and a part that fades with the distance between shapes. One
reference run moves predictions near it most, and distant ones by what the bias is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import RECOMPUTES, Numbers
from trainwright.planner.counts.parameters import active_parameters
from trainwright.spec.run import PlacedRun, RunSpec

BIAS, UNKNOWN_BIAS = 0.05, 0.25
"""Standard deviation of what all runs share: of a stack that published runs were fitted to, and of one without."""
SHAPE, REACH = 0.20, 0.5
"""Standard deviation of what depends on shape, and the distance over which it fades (see ``place``): with a longer
reach one row of a published table made others of its source worse (``report.calibrated_by_first``)."""
NOISE = 0.02
"""Equal machines differ so much (median of published pairs)."""
RUN_NOISE, MEMORY_NOISE = 0.05, 0.02
"""Standard deviation of one run against another of the same shape on one machine that does little else: a laptop's
clock, other programs; of the peak of resident memory."""
MEMORY_BIAS, MEMORY_SHAPE = 0.05, 0.05
SURPRISE = 2.0
"""Standard deviations within which a run of one's own machine is no surprise."""
BELIEVED = 2.0
"""Standard deviations: a run that is off by more was measured or set up otherwise, and counts as off by so much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A run with the logarithms of measured over predicted tokens per second and peak memory; None: not measured."""

    placed: PlacedRun
    log_speed: float | None
    log_memory: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """Factors for a prediction; ``known`` is how much of the uncertainty the references take away, 0 to 1.

    ``noise`` is the standard deviation of one run from another of the same shape, which no reference takes away.
    """

    speed: float = 1.0
    memory: float = 1.0
    known: float = 0.0
    noise: float = 0.0


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
        """Returns the standard deviation of a prediction before any run is known."""
        return math.hypot(self.bias, self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priors:
    """What is thought of time and of memory before any run is known, where the runs themselves may say otherwise."""

    time: Prior
    memory: Prior


def correction(placed: PlacedRun, references: Sequence[Reference], priors: Priors | None = None) -> Correction:
    """Returns what measured runs on the same device and stack say about a prediction.

    Args:
        placed: what is predicted.
        references: measured runs; those of other devices and stacks are passed over.
        priors: of one's own machine, adapted to its runs; None: of published runs, as they are.
    """
    like = [reference for reference in references if alike(reference.placed.run, placed.run)]
    if not like:
        return Correction()
    here, places = place(placed), [place(each.placed) for each in like]
    speeds = list(zip(places, (each.log_speed for each in like), strict=True))
    memories = list(zip(places, (each.log_memory for each in like), strict=True))
    of_time, of_memory, noise = _prior(placed.run, "time"), _prior(placed.run, "memory"), 0.0
    if priors is not None:
        of_time = adapted(priors.time, [each.log_speed for each in like if each.log_speed is not None] or [0.0])
        of_memory = adapted(priors.memory, [each.log_memory for each in like if each.log_memory is not None])
        noise = of_time.noise
    speed, known = expected(here, speeds, of_time)
    memory, _ = expected(here, memories, of_memory)
    return Correction(speed=math.exp(speed), memory=math.exp(memory), known=known, noise=noise)


def place(placed: PlacedRun) -> Numbers:
    """Returns the place of a run among others: natural logarithms of sizes and degrees, and units for all else."""
    run, layout, work = placed.run, placed.parallel, placed.run.workload
    parameters = active_parameters(run.model)
    tokens = layout.micro_batch_sequences * work.sequence_tokens / (layout.tp * layout.cp)
    return np.array(
        [
            *(math.log(size) / 2 for size in (parameters, work.sequence_tokens, tokens, run.cluster.devices)),
            *(math.log(degree) for degree in (layout.tp, layout.pp, layout.ep)),
            RECOMPUTES.index(work.recompute),
            0.0 if work.adapter is None else 2.0,
            ("fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4").index(work.precision),
            0.1 * layout.compile,
            0.25 * (work.optimizer == "muon"),
        ]
    )


def alike(one: RunSpec, other: RunSpec) -> bool:
    """Returns True where a run informs about another: of a like network, on the same device and stack."""
    same_machines = one.cluster.device.name == other.cluster.device.name and one.stack.time_of == other.stack.time_of
    return same_machines and one.model.unit == other.model.unit


def _prior(run: RunSpec, part: str) -> Prior:
    fitted = run.stack.fit.get(part, {}).get("rows", 0)
    return Prior(bias=BIAS if fitted else UNKNOWN_BIAS)


def expected(here: Numbers, known: Iterable[tuple[Numbers, float | None]], prior: Prior) -> tuple[float, float]:
    """Returns the mean of the process at a place, and the share of its variance that is explained."""
    runs = [(spot, value) for spot, value in known if value is not None]
    if not runs:
        return 0.0, 0.0
    places, values = np.array([spot for spot, _ in runs]), np.array([value for _, value in runs])
    limit = prior.believed * prior.deviation
    values = np.clip(values, -limit, limit)
    among = _covariance(places[:, None], places[None], prior) + prior.noise**2 * np.eye(len(runs))
    across = _covariance(places, here[None], prior)
    weights = np.linalg.solve(among, across)
    return float(weights @ values), float(weights @ across / prior.deviation**2)


def _covariance(one: Numbers, other: Numbers, prior: Prior) -> Numbers:
    distance = np.sqrt(((one - other) ** 2).sum(axis=-1))
    return np.asarray(prior.bias**2 + prior.shape**2 * np.exp(-distance / REACH))


def machine_priors(spread: float) -> Priors:
    """Returns the priors of one's own machine, whose times deviate by ``spread``.

    Half of the variance is the machine's, half the shape's.
    """
    return Priors(
        time=Prior(bias=spread / math.sqrt(2), shape=spread / math.sqrt(2), noise=RUN_NOISE),
        memory=Prior(bias=MEMORY_BIAS, shape=MEMORY_SHAPE, noise=MEMORY_NOISE),
    )


def adapted(prior: Prior, values: Sequence[float]) -> Prior:
    """Returns the prior with what the runs themselves say of its deviations; nothing is cut off.

    The bias is at least the runs' root mean square. Noise is at least what each differs from the mean of the others by,
    beyond what was to be expected; for a single run the prediction is the other.
    """
    logs, count = np.asarray(values), len(values)
    others = (logs.sum() - logs) / (count - 1) if count > 1 else np.zeros(1)
    surprise = np.maximum(0.0, np.abs(logs - others) - SURPRISE * prior.deviation)
    share = (count - 1) / count if count > 1 else 0.5
    bias = max(prior.bias, float(np.sqrt(np.mean(logs**2))))
    noise = math.hypot(prior.noise, float(np.sqrt(share * np.mean(surprise**2))))
    return replace(prior, bias=bias, noise=noise, believed=math.inf)
