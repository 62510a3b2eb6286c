"""``Estimate`` and ``Plan``: what the planner says, with where each assumption comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from trainwright.core.frozen import dataclass
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.spec.workload import TIMED_UPDATES, OptimizerName, ParallelPlan, Workload

Origin = Literal["catalog", "probed", "ledger", "default", "recipe", "given"]
Fit = Literal["fits", "uncertain", "does not fit"]


INTERVAL = 1.645
"""Standard deviations to either side of an interval that holds the truth nine times in ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A value with the range it is expected in."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Assumption:
    """One number an answer rests on: ``key`` says to programs which quantity, in one unit; ``name`` to readers."""

    key: str = field(kw_only=True)
    name: str
    value: float | str
    unit: str
    origin: Origin
    source: str = ""


def of_unmeasured(names: Mapping[str, str], optimizer: OptimizerName | None) -> tuple[Assumption, ...]:
    """Returns what stands in for parts of a run that nobody has measured.

    Args:
        names: ``Recipe.unmeasured``.
        optimizer: what the run's optimizer is counted as.
    """
    counted = f"as {optimizer}" if optimizer in TIMED_UPDATES else f"by the bytes of {optimizer}"
    known = {
        "optimizer": counted,
        "task": "as one pass",
        "network": "as the decoder",
        "convolutions": "as matrix products",
    }
    titles = {kind: f"memory and time of the {kind}" for kind in names}
    sources = {kind: f"nobody has measured {name}" for kind, name in names.items()}
    return tuple(
        Assumption(titles[kind], known[kind], "", "default", sources[kind], key=f"{kind}_unknown") for kind in names
    )


def of_frozen(frozen: bool) -> tuple[Assumption, ...]:
    """Returns what a plan makes of parameters that a recipe freezes by their names, which no plan knows."""
    why = "a plan knows no parameter by its name: memory and time are less"
    return (Assumption("frozen parameters", "as trained", "", "default", why, key="frozen"),) if frozen else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a run on a cluster asks of everything but its devices; None is unknown.

    ``host_memory_bytes`` is one node's; ``checkpoint_write_s`` one checkpoint's; ``loader_bytes_per_s``,
    ``disk_bytes``, ``power_w``, ``kwh`` (building included) and ``device_hours`` are the whole cluster's;
    ``nvme_bytes`` is what is offloaded to one node's drives.
    """

    host_memory_bytes: float
    host_memory_available_bytes: float | None
    checkpoint_bytes: float
    checkpoint_write_s: float
    checkpoint_write_bytes_per_s: float
    checkpoint_interval_s: float
    loader_bytes_per_s: float
    disk_bytes: float
    device_hours: float
    interruptions: float
    power_w: float | None = None
    kwh: float | None = None
    nvme_bytes: float = 0.0
    nvme_available_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A part of a step by the kind of work: what the step would be shorter by without it."""

    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The planner's answer for one model, workload, cluster and layout.

    ``phases`` are those of one step; ``run_phases`` those of the whole run, with evaluation, checkpoints and start-up,
    and sum to ``seconds.mid``. ``memory`` is the peak of the worst device. ``shares`` are the kinds of work in a step,
    ``exposed`` the kinds of communication that nothing hides. ``hfu`` counts recomputation; ``mfu`` is None where the
    peak is unknown. ``fit`` is *uncertain* where the device's memory lies within the prediction's error.
    """

    fits: bool
    memory: MemoryUse
    memory_available_bytes: float
    phases: PhaseTimes
    run_phases: PhaseTimes
    tokens_per_s: float
    mfu: float | None
    seconds: Interval
    usd: Interval | None
    bottleneck: str
    assumptions: tuple[Assumption, ...] = ()
    fit: Fit | None = None
    hfu: float | None = None
    memory_interval: Interval | None = None
    shares: tuple[Share, ...] = ()
    exposed: tuple[Share, ...] = ()
    needs: Needs | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """An alternative that was not chosen; ``overrides`` are the keys and values of a recipe that ask for it."""

    name: str
    reason: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rental:
    """The same run on one rented device.

    ``usd`` and ``usd_per_device_hour`` are None where no checked price is known; ``reason`` says why a run cannot be
    made there or cannot be priced.
    """

    device: str
    provider: str = ""
    price_kind: str = ""
    usd_per_device_hour: float | None = None
    fits: bool
    seconds: float = 0.0
    usd: float | None = None
    source: str = ""
    as_of: str = ""
    seconds_low: float = 0.0
    seconds_high: float = 0.0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the trainer executes and a launcher submits."""

    model: ModelSpec | ConvNetSpec
    parameters: Mapping[str, int]
    workload: Workload
    cluster: ClusterSpec
    parallel: ParallelPlan
    estimate: Estimate
    rejected: tuple[Rejected, ...] = ()
    rentals: tuple[Rental, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """As ``Recipe.unmeasured``: what the run's workload and model say something else for."""
    roomy: Plan | None = None
    """Of a plan that does not fit, the one that it would be with memory enough; None: not looked for."""
