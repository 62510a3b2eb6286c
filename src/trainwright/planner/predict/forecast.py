"""Time and memory of many layouts on one cluster: what ``plan`` shows for one and the search compares for thousands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.hardware.efficiency import read_efficiency
from trainwright.planner.adapters import adapter_training_flops
from trainwright.planner.flops import count_flops
from trainwright.planner.predict.convnet import convnet_exchange, convnet_memory, convnet_work
from trainwright.planner.predict.exchange import Exchange, exchange
from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.memory import MemoryTable, predict_memory, usable_bytes
from trainwright.planner.predict.offload import offload_s
from trainwright.planner.predict.step import Rates, StepTable, combine, rates
from trainwright.planner.predict.work import Work, forward_work, peak_flops_per_s
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec
from trainwright.spec.efficiency import Efficiency
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Workload

INTERVAL = 1.645
"""Standard deviations to either side of an interval that holds the truth nine times in ten."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forecast:
    """Arrays [L] over layouts, with what they were computed from.

    ``step_s`` is the middle of the range ``low_s`` to ``high_s``.
    """

    layouts: Layouts
    work: Work
    sent: Exchange
    rates: Rates
    step: StepTable
    memory: MemoryTable
    batch_tokens: int
    model_flops_per_token: float
    peak_flops_per_s: float
    cluster: ClusterSpec
    spread: float

    @property
    def step_s(self) -> Numbers:
        """Seconds of one step."""
        return self.step.total_s

    @property
    def low_s(self) -> Numbers:
        """The step's seconds at the fast end of the range."""
        return np.asarray(self.step_s * np.exp(-INTERVAL * self.spread))

    @property
    def high_s(self) -> Numbers:
        """The step's seconds at the slow end of the range."""
        return np.asarray(self.step_s * np.exp(INTERVAL * self.spread))

    @property
    def tokens_per_s_per_device(self) -> Numbers:
        """Tokens of the batch over seconds and devices."""
        return np.asarray(self.batch_tokens / self.step_s / self.layouts.devices)

    @property
    def mfu(self) -> Numbers:
        """Model FLOPs, attention in full, over the dense peak of the precision (Chowdhery et al., 2022)."""
        return np.asarray(self.tokens_per_s_per_device * self.model_flops_per_token / self.peak_flops_per_s)

    @property
    def available_bytes(self) -> float:
        """What a process can have of the device's memory."""
        return usable_bytes(self.cluster.device)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where the predicted peak is within the device's memory."""
        return self.memory.fits(self.cluster.device)

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Where the peak is too near to the device's memory to be sure."""
        return self.memory.uncertain(self.cluster.device)


def forecast(
    model: ModelSpec | ConvNetSpec,
    workload: Workload,
    layouts: Layouts,
    cluster: ClusterSpec,
    stack: Stack,
    *,
    general: Efficiency | None = None,
) -> Forecast:
    """Time and memory of each layout; images of a convolutional network are sequences.

    Raises:
        RecipeError: the device has no rate for the workload's precision, there is no link that the layouts need, or
            they are not for a convolutional network.
    """
    rate = rates(model, workload, cluster, stack, general or read_efficiency())
    if isinstance(model, ConvNetSpec):
        work = convnet_work(model, workload, layouts, cluster.device)
        sent = convnet_exchange(model, workload, layouts, cluster)
        memory = convnet_memory(model, workload, layouts, cluster, stack)
        step = combine(work, sent, layouts, rate)
    else:
        work = forward_work(model, workload, layouts, cluster.device)
        sent = exchange(model, workload, layouts, cluster, stack.dispatch)
        memory = predict_memory(model, workload, layouts, cluster, stack)
        step = combine(work, sent, layouts, rate)
        moved = offload_s(model, workload, layouts, cluster, stack, step_s=step.total_s)
        step = replace(step, update=step.update + moved)
    return Forecast(
        layouts=layouts, work=work, sent=sent, rates=rate, step=step, memory=memory, batch_tokens=workload.batch_tokens,
        model_flops_per_token=model_flops_per_token(model, workload),
        peak_flops_per_s=peak_flops_per_s(cluster.device, workload.precision),
        cluster=cluster, spread=stack.time.spread,
    )  # fmt: skip


def model_flops_per_token(model: ModelSpec | ConvNetSpec, workload: Workload) -> float:
    """Operations that training one token takes, attention in full and nothing recomputed."""
    tokens = workload.sequence_tokens
    if workload.adapter is not None and isinstance(model, ModelSpec):
        return adapter_training_flops(model, workload.adapter, sequences=1, sequence_tokens=tokens) / tokens
    return count_flops(model, sequences=1, sequence_tokens=tokens).training / tokens
