"""What a forecast asks of a kind of network beside its kernels: what it sends, keeps and offloads.

``counted`` is the only place here that tells transformers from convolutional networks.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.process import Process
from trainwright.planner.forecast.communication.exchange import Exchange, exchange
from trainwright.planner.forecast.convnet import convnet_exchange, convnet_memory
from trainwright.planner.forecast.memory.offload import offload_s
from trainwright.planner.forecast.memory.states import case_of, kept
from trainwright.planner.forecast.memory.table import MemoryTable, library_bytes, predict_memory, stuck_share
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.run import AnyModel, RunSpec


class Counted(Protocol):
    """Arrays [L] over layouts."""

    def exchange(self, run: RunSpec, layouts: Layouts) -> Exchange:
        """Returns every collective of a step.

        Raises:
            RecipeError: no link is known between devices that need one.
        """

    def memory(self, run: RunSpec, layouts: Layouts, process: Process | None) -> MemoryTable:
        """Returns the peak memory of one device."""

    def states_bytes(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns the bytes that an update needs at once, without activations."""

    def offload_s(self, run: RunSpec, layouts: Layouts, *, step_s: Numbers) -> Numbers:
        """Returns the seconds that offload adds to a step."""

    def library_bytes(self, run: RunSpec) -> float:
        """Returns all of memory that depends on the device beside its size."""


class Transformers:
    """Every parallel layout, adapters and offload."""

    def exchange(self, run: RunSpec, layouts: Layouts) -> Exchange:
        """See ``Counted``."""
        return exchange(run, layouts)

    def memory(self, run: RunSpec, layouts: Layouts, process: Process | None) -> MemoryTable:
        """See ``Counted``."""
        return predict_memory(run, layouts, process=process)

    def states_bytes(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """See ``Counted``."""
        states = kept(case_of(run.transformer, run.workload, layouts, run.stack.memory))
        together = states.weights + states.gradients + states.optimizer + states.update
        return np.asarray((1 + stuck_share(run.stack.memory)) * np.max(together, axis=0))

    def offload_s(self, run: RunSpec, layouts: Layouts, *, step_s: Numbers) -> Numbers:
        """See ``Counted``."""
        return offload_s(run, layouts, step_s=step_s)

    def library_bytes(self, run: RunSpec) -> float:
        """See ``Counted``."""
        return library_bytes(run.transformer, run.cluster.device)


class ConvolutionalNetworks:
    """Data parallelism alone."""

    def exchange(self, run: RunSpec, layouts: Layouts) -> Exchange:
        """See ``Counted``."""
        return convnet_exchange(run, layouts)

    def memory(self, run: RunSpec, layouts: Layouts, process: Process | None) -> MemoryTable:
        """See ``Counted``; the doctor probes transformers, so that there is no ``process``."""
        del process
        return convnet_memory(run, layouts)

    def states_bytes(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns nothing: states are small beside the activations."""
        del run
        return np.zeros(len(layouts))

    def offload_s(self, run: RunSpec, layouts: Layouts, *, step_s: Numbers) -> Numbers:
        """Returns nothing: layouts that offload are refused before."""
        del run, layouts
        return np.zeros_like(step_s)

    def library_bytes(self, run: RunSpec) -> float:
        """Returns nothing: a stack's workspace holds it."""
        del run
        return 0.0


TRANSFORMERS, CONVOLUTIONAL_NETWORKS = Transformers(), ConvolutionalNetworks()


def counted(model: AnyModel) -> Counted:
    """Returns what counts a network of that kind."""
    return CONVOLUTIONAL_NETWORKS if isinstance(model, ConvNetSpec) else TRANSFORMERS
