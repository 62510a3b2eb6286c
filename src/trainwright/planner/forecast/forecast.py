"""Time and memory of many layouts on one cluster: what ``plan`` shows for one and the search compares for thousands."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.flops import training_flops_per_token
from trainwright.planner.counts.kernels import Exposure, Kernels, Kind, RateSource
from trainwright.planner.counts.layouts import Layouts, Numbers, taken
from trainwright.planner.counts.methods import adapter_training_flops
from trainwright.planner.counts.work import peak_flops_per_s
from trainwright.planner.forecast.communication.exchange import Exchange
from trainwright.planner.forecast.host_link import doubt, paged_s
from trainwright.planner.forecast.memory.table import MemoryTable, usable_bytes
from trainwright.planner.forecast.networks import counted
from trainwright.planner.forecast.padded import kernels_of, sent_of
from trainwright.planner.forecast.time.step import StepTable, combine
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.plan import INTERVAL
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forecast:
    """Arrays [L] over layouts, with what they were computed from.

    ``step_s`` is the middle of the range ``low_s`` to ``high_s``.
    """

    run: RunSpec
    layouts: Layouts
    source: RateSource
    kernels: Kernels
    exposure: Exposure
    sent: Exchange
    step: StepTable
    memory: MemoryTable
    spread: Numbers
    without: tuple[Kind, ...] = ()
    """Kinds of work that ``kernels`` leaves out."""

    @property
    def model_flops_per_token(self) -> float:
        """Returns the operations that training one token takes."""
        return model_flops_per_token(self.run.model, self.run.workload)

    @property
    def peak_flops_per_s(self) -> float:
        """Returns the dense peak of a device for the run's precision."""
        return peak_flops_per_s(self.run.cluster.device, self.run.workload.precision)

    @property
    def step_s(self) -> Numbers:
        """Returns the seconds of one step."""
        return self.step.total_s

    @property
    def low_s(self) -> Numbers:
        """Returns the step's seconds at the fast end of the range."""
        return np.asarray(self.step_s * np.exp(-INTERVAL * self.spread))

    @property
    def high_s(self) -> Numbers:
        """Returns the step's seconds at the slow end of the range."""
        return np.asarray(self.step_s * np.exp(INTERVAL * self.spread))

    @property
    def step_tokens(self) -> Numbers:
        """Returns the tokens that all devices train in one step."""
        return np.asarray(self.layouts.batch_sequences * self.run.workload.tokens_per_sequence)

    @property
    def tokens_per_s_per_device(self) -> Numbers:
        """Returns the tokens per second of one device."""
        return np.asarray(self.step_tokens / self.step_s / self.layouts.devices)

    @property
    def mfu(self) -> Numbers:
        """Returns the model FLOPs, attention in full, over the dense peak of the precision (Chowdhery et al., 2022)."""
        return np.asarray(self.tokens_per_s_per_device * self.model_flops_per_token / self.peak_flops_per_s)

    def take(self, places: NDArray[np.intp]) -> Forecast:
        """Returns the forecast of the layouts at ``places``."""
        return replace(
            self,
            layouts=taken(self.layouts, places),
            kernels=taken(self.kernels, places),
            exposure=taken(self.exposure, places),
            sent=taken(self.sent, places),
            step=taken(self.step, places),
            memory=taken(self.memory, places),
            spread=self.spread[places],
        )

    @property
    def available_bytes(self) -> float:
        """Returns the bytes of the device's memory that a process can use."""
        return usable_bytes(self.run.cluster.device)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Returns True [L] where the predicted peak fits the device's memory, and what left it the node's."""
        fits: NDArray[np.bool_] = self.memory.fits(self.run.cluster.device)
        return fits & self.memory.fits_host(self.run.cluster.node)

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Returns True [L] where the peak is too near to the device's memory to be sure."""
        return self.memory.uncertain(self.run.cluster.device)


def forecast(run: RunSpec, layouts: Layouts, source: RateSource, *, memory: MemoryTable | None = None) -> Forecast:
    """Returns time and memory of each layout; images of a convolutional network are sequences.

    Args:
        run: what is asked about.
        layouts: of the run's cluster.
        source: says how fast one of the cluster's devices is.
        memory: of these layouts, where it is known.

    Raises:
        RecipeError: the source has no rate for what the run asks, there is no link that the layouts need, or they are
            not for a convolutional network.
    """
    kernels, exposure = kernels_of(source, run, layouts), source.exposure(run)
    network = counted(run.model)
    sent = sent_of(run, layouts, network.exchange)
    memory = network.memory(run, layouts, source.process(run)) if memory is None else memory
    return Forecast(
        run=run,
        layouts=layouts,
        source=source,
        kernels=kernels,
        exposure=exposure,
        sent=sent,
        memory=memory,
        step=step_table(run, kernels, sent, layouts, exposure, memory=memory),
        spread=np.hypot(math.hypot(source.spread(run), doubt(run, layouts)), source.beyond(run, layouts)),
    )


def step_s(run: RunSpec, layouts: Layouts, source: RateSource) -> Numbers:
    """Returns the seconds [L] of a step: a forecast without memory; raises as ``forecast``."""
    network, pages = counted(run.model), run.workload.paged_moments
    sent = sent_of(run, layouts, network.exchange)
    memory = network.memory(run, layouts, source.process(run)) if pages else None
    return step_table(run, kernels_of(source, run, layouts), sent, layouts, source.exposure(run), memory=memory).total_s


def step_table(
    run: RunSpec,
    kernels: Kernels,
    sent: Exchange,
    layouts: Layouts,
    exposure: Exposure,
    *,
    memory: MemoryTable | None = None,
) -> StepTable:
    """Returns the seconds of a step with what the link to host memory adds to it.

    Offload and paged moments (those that ``memory`` has no room for) lengthen the update, activations that are not back
    in time count as communication.
    """
    step, network = combine(kernels, sent, layouts, exposure), counted(run.model)
    added = network.offload_s(run, layouts, step.forward, step.backward)
    if memory is not None and run.workload.paged_moments:
        added = added + paged_s(run.cluster, memory)
    waited = network.activations_s(run, layouts, step) if run.workload.activation_offload else 0.0
    return replace(step, update=step.update + added, communicate=step.communicate + waited)


def model_flops_per_token(model: AnyModel, workload: Workload) -> float:
    """Returns the operations that training one token takes, attention in full and nothing recomputed or padded."""
    tokens = workload.tokens_per_sequence
    if workload.adapter is None:
        return training_flops_per_token(model, sequence_tokens=tokens)
    return adapter_training_flops(transformer(model), workload.adapter, sequences=1, sequence_tokens=tokens) / tokens


def corrected(forecast: Forecast, *, speed: float, memory: float, known: float, noise: float = 0.0) -> Forecast:
    """Returns the forecast with what measured runs say: ``speed`` and ``memory`` are factors of the predicted ones.

    Seconds of all phases are scaled alike. Of memory, what is kept of weights, gradients and moments is certain: what
    is left of the peak takes the difference. The range of the time is narrower by ``known``, the share of the
    uncertainty that the runs explain; ``noise`` is the deviation of one run from another, which stays.
    """
    step = StepTable(**{field.name: getattr(forecast.step, field.name) / speed for field in fields(forecast.step)})
    table, total = forecast.memory, forecast.memory.device_bytes
    loose = ("activations", "logits", "communication", "workspace", "reserved_unused")
    spare = np.add.reduce([getattr(table, name) for name in loose])
    factor = np.maximum(0.0, 1 + (memory - 1) * total / np.maximum(spare, 1.0))
    scaled = {name: getattr(table, name) * factor for name in (*loose, "stuck")}
    left = math.sqrt(max(0.0, 1 - known))
    return replace(forecast, step=step, spread=np.hypot(forecast.spread * left, noise), memory=replace(table, **scaled))
