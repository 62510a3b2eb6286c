"""``Estimate`` and ``Plan``: what the planner says, with where each assumption comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainwright.spec.device import ClusterSpec
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import ParallelPlan, Workload

Origin = Literal["catalog", "probed", "ledger", "default", "recipe"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A value with the range it is expected in."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """One number the estimate rests on."""

    name: str
    value: float | str
    unit: str
    origin: Origin
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The planner's answer for one model, workload, cluster and layout.

    ``phases`` are those of one training step; ``run_phases`` those of the whole run, including evaluation,
    checkpoints and start-up, and sum to ``seconds.mid``. ``memory`` is the peak of the worst device.
    """

    fits: bool
    memory: MemoryUse
    memory_available_bytes: float
    phases: PhaseTimes
    run_phases: PhaseTimes
    tokens_per_s: float
    mfu: float
    seconds: Interval
    usd: Interval | None
    bottleneck: str
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """An alternative that was not chosen."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rental:
    """The same run on one rented device.

    ``usd`` and ``usd_per_device_hour`` are None where no checked price is known; ``reason`` says why a run cannot be
    made there or cannot be priced.
    """

    device: str
    provider: str
    price_kind: str
    usd_per_device_hour: float | None
    fits: bool
    seconds: float
    usd: float | None
    source: str
    as_of: str
    seconds_low: float = 0.0
    seconds_high: float = 0.0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the trainer executes and a launcher submits."""

    model: ModelSpec
    parameters: Mapping[str, int]
    workload: Workload
    cluster: ClusterSpec
    parallel: ParallelPlan
    estimate: Estimate
    rejected: tuple[Rejected, ...] = ()
    rentals: tuple[Rental, ...] = ()
