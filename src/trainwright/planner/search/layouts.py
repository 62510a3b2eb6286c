"""The fastest layouts of a model on a cluster, and why others were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.hardware.efficiency import read_efficiency
from trainwright.planner.predict.collectives import Fabric
from trainwright.planner.predict.convnet import convnet_exchange, convnet_memory, convnet_work
from trainwright.planner.predict.exchange import exchange
from trainwright.planner.predict.forecast import Forecast, forecast
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.memory import MemoryTable, library_bytes, predict_memory, stuck_share, usable_bytes
from trainwright.planner.predict.offload import offload_s
from trainwright.planner.predict.states import case_of, kept
from trainwright.planner.predict.step import combine, rates
from trainwright.planner.predict.work import forward_work, peak_flops_per_s
from trainwright.planner.search.candidates import Candidates, Network, Pruned, candidates, parallel_plan, spread
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec, DeviceSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Offload, ParallelPlan, Recompute, Workload

Memo = dict[tuple[float, ...], tuple[Candidates, Numbers, MemoryTable]]
"""Candidates, what their states need, and what they need at the peak."""
UNSURE = 1.1
"""How much longer a step may take that surely has the memory it needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A layout with its forecast: seconds of a step and their range, bytes that the worst device needs.

    ``unsure``: the device's memory lies within the error of the prediction.
    """

    parallel: ParallelPlan
    recompute: Recompute
    devices: int
    fits: bool
    unsure: bool
    step_s: float
    low_s: float
    high_s: float
    memory_bytes: float
    host_bytes: float
    nvme_bytes: float
    mfu: float
    tokens_per_s_per_device: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """Layouts [L] with the bytes that they need of a device at the peak.

    ``step_s`` is infinite where the peak is beyond the device's memory, and where less recomputation fits too.
    """

    layouts: Layouts
    memory_bytes: Numbers
    step_s: Numbers
    unsure: NDArray[np.bool_]
    """Where the device's memory lies within the error of the prediction."""
    pruned: tuple[Pruned, ...]

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where the peak is within the device's memory, with as little recomputation as that takes."""
        return np.isfinite(self.step_s)

    @property
    def rank_s(self) -> Numbers:
        """``step_s``, longer where memory is unsure: what surely fits comes first unless it is that much slower."""
        return self.step_s * np.where(self.unsure, UNSURE, 1.0)

    def order(self) -> NDArray[np.intp]:
        """Places of those that fit, best first; of all, those nearest to fitting first, if none does."""
        if self.fits.any():
            return np.argsort(self.rank_s, kind="stable")[: int(self.fits.sum())]
        return np.argsort(self.memory_bytes, kind="stable")


def compare(
    model: Network,
    workload: Workload,
    devices: Sequence[int],
    cluster: ClusterSpec,
    stack: Stack,
    *,
    offload: Offload = "none",
    thorough: bool = True,
    memo: Memo | None = None,
) -> Compared:
    """Memory of every sensible layout, and the time of those that fit and can be the fastest.

    Where none fits, a ``thorough`` comparison tries those that are not sensible too. Comparisons of one model, workload
    and stack on many devices can share a ``memo``: what reaches as far has the same layouts. It keeps the latest, so
    that such devices should follow each other.

    Raises:
        RecipeError: the device has no rate for the workload's precision, or no link that the layouts need.
    """
    if not peak_flops_per_s(cluster.device, workload.precision):
        raise RecipeError(
            f"no {workload.precision} rate is known", where=cluster.device.name,
            expected=f"one of {', '.join(sorted(cluster.device.flops_per_s)) or 'none'}",
        )  # fmt: skip
    found = _compared(model, workload, devices, cluster, stack, offload=offload, memo=memo)
    if found.fits.any() or not thorough:
        return found
    every = _compared(model, workload, devices, cluster, stack, offload=offload, wasteful=True)
    return every if every.fits.any() else replace(every, pruned=found.pruned)


def _compared(
    model: Network, workload: Workload, devices: Sequence[int], cluster: ClusterSpec, stack: Stack, *,
    offload: Offload, wasteful: bool = False, memo: Memo | None = None,
) -> Compared:  # fmt: skip
    # What layouts there are, and what each needs, follows from these alone.
    key = (float(Fabric.of(cluster).domain), cluster.node.devices, workspace_bytes(model, cluster.device), *devices)
    memo = {} if memo is None else memo
    if key not in memo:
        memo.clear()
        left = candidates(model, workload, devices, cluster, stack, offload=offload, wasteful=wasteful)
        states = states_bytes(model, workload, left.layouts, stack)
        memo[key] = (left, states, memory_table(model, workload, left.layouts, cluster, stack))
    left, states, memory = memo[key]
    usable, fits = usable_bytes(cluster.device), memory.fits(cluster.device)
    step_s = np.full(len(fits), np.inf)
    worth = np.flatnonzero(fits & ~_needless(fits, left.recomputes))
    if len(worth):
        step_s[worth] = step_seconds(model, workload, left.layouts.take(worth), cluster, stack)
    over = states > usable
    return Compared(
        layouts=left.layouts, memory_bytes=memory.needed_bytes, step_s=step_s,
        unsure=memory.uncertain(cluster.device),
        pruned=(
            *left.pruned,
            *_too_large("states", states[over] / usable),
            *_too_large("activations", memory.needed_bytes[~over & ~fits] / usable),
        ),
    )  # fmt: skip


def states_bytes(model: Network, workload: Workload, layouts: Layouts, stack: Stack) -> Numbers:
    """Bytes [L] that an update needs at once, without a single activation."""
    if isinstance(model, ConvNetSpec):
        # Small beside its activations.
        return np.zeros(len(layouts))
    found = kept(case_of(model, workload, layouts, stack.memory))
    together = found.weights + found.gradients + found.optimizer + found.update
    return np.asarray((1 + stuck_share(stack.memory)) * np.max(together, axis=0))


def memory_table(
    model: Network, workload: Workload, layouts: Layouts, cluster: ClusterSpec, stack: Stack
) -> MemoryTable:
    """Peak memory of transformers and of convolutional networks."""
    predict = convnet_memory if isinstance(model, ConvNetSpec) else predict_memory
    return predict(model, workload, layouts, cluster, stack)  # type: ignore[arg-type]  # chosen by the model's type


def workspace_bytes(model: Network, device: DeviceSpec) -> float:
    """All that memory depends on in the device."""
    return 0.0 if isinstance(model, ConvNetSpec) else library_bytes(model, device)


def too_large(rule: str, low: float, high: float) -> str:
    """The reason of a rule about memory, which is needed ``low`` to ``high`` times."""
    what = {"states": "weights, gradients and optimizer state alone are", "activations": "states fit, but the peak is"}
    return f"{what[rule]} {spread(np.array([low, high]))} the memory"


def _too_large(rule: str, ratios: Numbers) -> list[Pruned]:
    if not len(ratios):
        return []
    low, high = float(ratios.min()), float(ratios.max())
    return [Pruned(rule=rule, reason=too_large(rule, low, high), layouts=len(ratios), ratios=(low, high))]


def _needless(fits: NDArray[np.bool_], recomputes: int) -> NDArray[np.bool_]:
    """Where less recomputation fits too, which is never slower."""
    each = fits.reshape(-1, recomputes)
    before: NDArray[np.int_] = np.cumsum(each, axis=1) - each
    return np.ravel(before > 0)


def step_seconds(model: Network, workload: Workload, layouts: Layouts, cluster: ClusterSpec, stack: Stack) -> Numbers:
    """Seconds [L] of a step: ``forecast`` without memory."""
    rate = rates(model, workload, cluster, stack, read_efficiency())
    if isinstance(model, ConvNetSpec):
        sent = convnet_exchange(model, workload, layouts, cluster)
        return combine(convnet_work(model, workload, layouts, cluster.device), sent, layouts, rate).total_s
    work = forward_work(model, workload, layouts, cluster.device)
    sent = exchange(model, workload, layouts, cluster, stack.dispatch)
    step_s = combine(work, sent, layouts, rate).total_s
    return step_s + offload_s(model, workload, layouts, cluster, stack, step_s=step_s)


def best_layouts(
    model: Network,
    workload: Workload,
    cluster: ClusterSpec,
    stack: Stack,
    *,
    count: int = 5,
    offload: Offload = "none",
) -> list[Ranked]:
    """The ``count`` best layouts on all of ``cluster``: those that fit, fastest first, else those nearest to it.

    Empty where no layout divides model and batch over the devices; ``why_not`` says why.

    Raises:
        RecipeError: see ``compare``.
    """
    found = compare(model, workload, [cluster.devices], cluster, stack, offload=offload)
    places = found.order()[:count]
    if not len(places):
        return []
    return ranked(forecast(model, workload, found.layouts.take(places), cluster, stack), cluster.device)


def ranked(found: Forecast, device: DeviceSpec) -> list[Ranked]:
    """Each layout of a forecast by itself, in its order."""
    rows, fits, unsure = [], found.memory.fits(device), found.memory.uncertain(device)
    for place in range(len(found.layouts)):
        parallel, recompute = parallel_plan(found.layouts, place)
        rows.append(
            Ranked(
                parallel=parallel, recompute=recompute, devices=int(found.layouts.devices[place]),
                fits=bool(fits[place]), unsure=bool(unsure[place]),
                step_s=float(found.step_s[place]), low_s=float(found.low_s[place]),
                high_s=float(found.high_s[place]), memory_bytes=float(found.memory.needed_bytes[place]),
                host_bytes=float(found.memory.host_bytes[place]),
                nvme_bytes=float(found.memory.nvme_bytes[place]), mfu=float(found.mfu[place]),
                tokens_per_s_per_device=float(found.tokens_per_s_per_device[place]),
            )
        )  # fmt: skip
    return rows


def why_not(
    model: Network, workload: Workload, cluster: ClusterSpec, stack: Stack, *, offload: Offload = "none"
) -> tuple[Pruned, ...]:
    """The classes of layouts on ``cluster`` that were left out, each with its reason and how many they are.

    Raises:
        RecipeError: see ``compare``.
    """
    return compare(model, workload, [cluster.devices], cluster, stack, offload=offload).pruned
