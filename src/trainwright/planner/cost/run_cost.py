"""From a step to a run: steps, wall-clock time, dollars, energy, checkpoints and what disks must deliver.

Everything is an array [L] over the layouts of a forecast, so that ``plan`` and the search share it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.energy import energy
from trainwright.hardware.catalogue.nodes import NVME_DISK_BYTES_PER_S
from trainwright.hardware.catalogue.runs import RunNumbers, read_runs
from trainwright.planner.cost.goodput import (
    DEVICE_MTBF_S,
    HOUR_S,
    RECOVERY_S,
    Goodput,
    goodput,
    spot,
    started_s,
)
from trainwright.planner.counts.adapters import count_trained
from trainwright.planner.counts.layouts import Numbers, Values
from trainwright.planner.counts.parameters import MOMENT_BYTES
from trainwright.planner.forecast.forecast import Forecast
from trainwright.planner.forecast.networks import counted
from trainwright.planner.forecast.ramp import mean_step
from trainwright.planner.forecast.time.step import evaluated_s
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

if TYPE_CHECKING:
    from trainwright.hardware.prices.clouds import Billing

KEPT_CHECKPOINTS = 2
"""The last complete one, and the one being written."""
IMAGE_BYTES = 108e3
"""One image as a loader reads it: ImageNet-1k's training images are 138 GB for 1.28 million (image-net.org)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """How a run is operated; ``goodput`` says what each does."""

    checkpoint_interval_s: float | None = None
    device_mtbf_s: float = DEVICE_MTBF_S
    recovery_s: float = RECOVERY_S
    spot_provider: str | None = None
    """The cloud's short name where nodes may be taken back; None: they are kept."""
    billing: Billing | None = None
    """How the provider counts time; None: to the second."""
    attended: bool = False
    """On one's own machine: a dry pass comes before the first step, and the last step writes a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RunCost:
    """Arrays [L]; ``parts`` sums to ``seconds``, which lies between ``low_s`` and ``high_s`` nine times in ten.

    ``mean`` is the forecast of the run's mean step: where its batch grows, ``steps`` of those are all of its steps.
    ``usd`` pays for ``billed_s``. It is None where no price is known, ``kwh`` (building included) where the device's
    power is not. ``checkpoint_bytes`` is one checkpoint of the whole model, ``checkpoint_s`` its writing;
    ``loader_bytes_per_s`` and ``disk_bytes`` are the whole cluster's.
    """

    mean: Forecast
    steps: Numbers
    seconds: Numbers
    low_s: Numbers
    high_s: Numbers
    parts: Goodput
    device_hours: Numbers
    billed_s: Numbers
    usd: Numbers | None
    usd_low: Numbers | None
    usd_high: Numbers | None
    kwh: Numbers | None
    power_w: Numbers | None
    checkpoint_bytes: float
    checkpoint_s: Numbers
    checkpoint_write_bytes_per_s: Numbers
    loader_bytes_per_s: Numbers
    disk_bytes: Numbers


def run_cost(
    forecast: Forecast,
    run: RunSpec,
    *,
    total_tokens: Values,
    usd_per_device_hour: Values | None = None,
    settings: RunSettings | None = None,
    numbers: RunNumbers | None = None,
) -> RunCost:
    """Returns what training on ``total_tokens`` takes with each layout of a forecast.

    Args:
        forecast: of a step.
        run: the workload's ``validations`` of ``validation_tokens`` each are added; each node writes its share of a
            checkpoint to its own disk.
        total_tokens: rounded up to whole steps of each layout's batch.
        usd_per_device_hour: a price, or an array [L].
        settings: failures, spot nodes.
        numbers: the catalogue's, unless given.
    """
    settings, numbers = settings or RunSettings(), numbers or read_runs()
    model, workload, cluster = run.model, run.workload, run.cluster
    forecast, size_bytes = mean_step(forecast), checkpoint_bytes(run)
    batch_tokens = forecast.step_tokens
    steps = _steps(workload, batch_tokens, total_tokens)
    # All nodes of one replica write together.
    devices = forecast.layouts.devices
    writers = np.floor(devices / cluster.node.devices / forecast.layouts.dp_replicate)
    write_bytes_per_s = np.maximum(1.0, writers) * (cluster.node.disk_bytes_per_s or NVME_DISK_BYTES_PER_S)
    checkpoint_s = size_bytes / write_bytes_per_s
    parts = _parts(forecast, run, steps=steps, settings=settings, numbers=numbers, checkpoint_s=checkpoint_s)
    seconds = parts.total_s
    slow = np.exp(INTERVAL * np.hypot(forecast.spread, numbers.spread))
    # No run is faster than its steps at the fast end of theirs.
    fast = np.maximum(1.0 / slow, np.minimum(1.0, steps * forecast.low_s / seconds))
    device_hours = np.asarray(seconds * devices / HOUR_S)
    usd_per_s = None if usd_per_device_hour is None else devices * usd_per_device_hour / HOUR_S
    each = energy(cluster.device, 1, HOUR_S)
    # Images are not kept on the nodes' disks.
    read_bytes = 0.0 if model.sees_images else token_bytes(model, workload)
    return RunCost(
        mean=forecast,
        steps=steps,
        seconds=seconds,
        low_s=seconds * fast,
        high_s=seconds * slow,
        parts=parts,
        device_hours=device_hours,
        billed_s=_billed_s(seconds, settings, devices),
        usd=_paid(seconds, settings, devices, usd_per_s),
        usd_low=_paid(seconds * fast, settings, devices, usd_per_s),
        usd_high=_paid(seconds * slow, settings, devices, usd_per_s),
        kwh=None if each is None else device_hours * each.building_kwh,
        power_w=None if each is None else devices * each.machine_power_w,
        checkpoint_bytes=size_bytes,
        checkpoint_s=checkpoint_s,
        checkpoint_write_bytes_per_s=write_bytes_per_s,
        loader_bytes_per_s=batch_tokens / forecast.step_s * token_bytes(model, workload),
        disk_bytes=KEPT_CHECKPOINTS * size_bytes + steps * batch_tokens * read_bytes,
    )


def _steps(workload: Workload, batch_tokens: Numbers, total_tokens: Values) -> Numbers:
    if workload.ramp:
        return np.full_like(batch_tokens, workload.steps)
    return np.maximum(1.0, np.ceil(np.round(np.asarray(total_tokens, dtype=np.float64)) / batch_tokens))


def _billed_s(wall_s: Numbers, settings: RunSettings, devices: Numbers) -> Numbers:
    return wall_s if settings.billing is None else settings.billing.billed_s(wall_s, devices)


def _paid(wall_s: Numbers, settings: RunSettings, devices: Numbers, usd_per_s: Numbers | None) -> Numbers | None:
    return None if usd_per_s is None else np.asarray(_billed_s(wall_s, settings, devices) * usd_per_s)


def checkpoint_bytes(run: RunSpec) -> float:
    """Returns the bytes of a checkpoint: trained weights and the optimizer's state, as they are kept in memory.

    Of adapters only their own weights and state are kept.
    """
    count = count_trained(run.model, run.workload)
    if run.workload.adapter is not None:
        # The adapters' weights and AdamW's two moments.
        each, moments = run.stack.memory.adapter_bytes, run.workload.moments
        return (each + 2 * (each if moments is None else MOMENT_BYTES[moments])) * count
    # Copies in 8 bits are made again from what is stored.
    stored = replace(run.workload, precision="bf16") if run.workload.precision == "fp8" else run.workload
    kept = counted(run.model).state_bytes(replace(run, workload=stored))
    return (kept.weight + kept.optimizer) * count


def token_bytes(model: AnyModel, workload: Workload) -> float:
    """Returns the bytes that a loader reads for one token: its id in 16 or 32 bits, or an image's share."""
    if model.sees_images:
        return IMAGE_BYTES / workload.sequence_tokens
    return 2.0 if transformer(model).vocabulary <= 1 << 16 else 4.0


def _parts(
    forecast: Forecast,
    run: RunSpec,
    *,
    steps: Numbers,
    settings: RunSettings,
    numbers: RunNumbers,
    checkpoint_s: Numbers,
) -> Goodput:
    workload, cluster, layouts = run.workload, run.cluster, forecast.layouts
    steps_s = steps * forecast.step_s
    evaluated_steps = (
        workload.validations * workload.validation_tokens / layouts.batch_sequences / workload.tokens_per_sequence
    )
    evaluation_s = evaluated_steps * evaluated_s(forecast.kernels, forecast.step)
    interval_s: Values | None = settings.checkpoint_interval_s
    nodes = np.maximum(1.0, layouts.devices / cluster.node.devices)  # a part of a node is taken back as a whole
    start_s: Values = started_s(numbers.start_s, nodes)
    if settings.attended and interval_s is not None:
        work_s = steps_s + evaluation_s
        interval_s = work_s / (1 + np.floor(work_s / interval_s))
        start_s = start_s + (forecast.step.forward + forecast.step.backward) / layouts.micro_batches
    overhead = numbers.overhead_share(steps_s, layouts.devices)
    parts = goodput(
        steps_s,
        devices=layouts.devices,
        checkpoint_s=checkpoint_s,
        checkpoint_interval_s=interval_s,
        evaluation_s=evaluation_s,
        device_mtbf_s=settings.device_mtbf_s,
        recovery_s=settings.recovery_s,
        start_s=start_s,
        run_overhead=overhead,
    )
    if settings.spot_provider is None:
        return parts
    work = parts.steps_s + parts.evaluation_s
    taken = spot(
        work,
        nodes=nodes,
        devices=layouts.devices,
        provider=settings.spot_provider,
        checkpoint_s=checkpoint_s,
        device_mtbf_s=settings.device_mtbf_s,
    )
    written = work / taken.checkpoint_interval_s * checkpoint_s
    ends = np.isfinite(taken.total_s)
    undone = np.maximum(np.where(ends, taken.total_s, 0.0) - work - written, 0.0)
    back = np.minimum(undone, taken.recovery_s)
    return replace(
        parts,
        checkpoints_s=written,
        recovery_s=back,
        lost_s=np.where(ends, undone - back, np.inf),
        overhead_s=overhead * (np.where(ends, taken.total_s, 0.0) + start_s),
        interruptions=taken.interruptions,
        checkpoint_interval_s=taken.checkpoint_interval_s,
    )
