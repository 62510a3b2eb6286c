"""What a forecast asks of a kind of network beside its kernels: what it sends, keeps and offloads.

``counted`` is the only place here that tells transformers from convolutional networks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.process import Process
from trainwright.planner.forecast.communication.exchange import Exchange, exchange
from trainwright.planner.forecast.convnet import convnet_exchange, convnet_memory, convnet_state_bytes
from trainwright.planner.forecast.host_link import activations_s
from trainwright.planner.forecast.memory.offload import offload_s, offloaded
from trainwright.planner.forecast.memory.per_parameter import StateBytes, parameter_bytes
from trainwright.planner.forecast.memory.states import case_of, kept, memory_of
from trainwright.planner.forecast.memory.table import MemoryTable, library_bytes, predict_memory, stuck_share
from trainwright.planner.forecast.time.step import StepTable
from trainwright.spec.convnet import AnyModel, ConvNetSpec
from trainwright.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """One kind of network; arrays [L] over layouts.

    ``exchange`` returns every collective of a step, and raises RecipeError where no link is known that it needs;
    ``memory`` the peak of one device; ``state_bytes`` the bytes of one trained parameter; ``states_bytes`` those that
    an update needs at once, without activations; ``host_bytes`` what offload puts into a node's memory at the least;
    ``offload_s`` the seconds that offload adds to a step whose forward and backward passes take so many;
    ``activations_s`` those that a step waits for saved activations to go to host memory and back; ``library_bytes``
    what of memory depends on the device beside its size.
    """

    exchange: Callable[[RunSpec, Layouts], Exchange]
    memory: Callable[[RunSpec, Layouts, Process | None], MemoryTable]
    state_bytes: Callable[[RunSpec], StateBytes]
    states_bytes: Callable[[RunSpec, Layouts], Numbers]
    host_bytes: Callable[[RunSpec, Layouts], Numbers]
    offload_s: Callable[[RunSpec, Layouts, Numbers, Numbers], Numbers]
    activations_s: Callable[[RunSpec, Layouts, StepTable], Numbers]
    library_bytes: Callable[[RunSpec], float]


def _state_bytes(run: RunSpec) -> StateBytes:
    return parameter_bytes(run.transformer, run.workload, memory_of(run.transformer, run.stack.memory))


def _states_bytes(run: RunSpec, layouts: Layouts) -> Numbers:
    states = kept(case_of(run.transformer, run.workload, layouts, run.stack.memory))
    together = states.weights + states.gradients + states.optimizer + states.update
    return np.asarray((1 + stuck_share(run.stack.memory)) * np.max(together, axis=0))


def _host_bytes(run: RunSpec, layouts: Layouts) -> Numbers:
    if layouts.has("offload", "none").all():
        return np.zeros(len(layouts))
    case = case_of(run.transformer, run.workload, layouts, run.stack.memory, kernels=run.kernels)
    return np.asarray(np.min(offloaded(case).host, axis=0) * run.cluster.node.devices)


TRANSFORMERS = Counted(
    exchange=exchange,
    memory=lambda run, layouts, process: predict_memory(run, layouts, process=process),
    state_bytes=_state_bytes,
    states_bytes=_states_bytes,
    host_bytes=_host_bytes,
    offload_s=offload_s,
    activations_s=activations_s,
    library_bytes=lambda run: library_bytes(run.transformer, run.cluster.device),
)
"""Every parallel layout, adapters and offload."""
CONVOLUTIONAL_NETWORKS = Counted(
    exchange=convnet_exchange,
    memory=lambda run, layouts, process: convnet_memory(run, layouts),
    state_bytes=lambda run: convnet_state_bytes(run.workload, run.stack.memory),
    states_bytes=lambda run, layouts: np.zeros(len(layouts)),
    host_bytes=lambda run, layouts: np.zeros(len(layouts)),
    offload_s=lambda run, layouts, forward_s, backward_s: np.zeros(len(layouts)),
    activations_s=lambda run, layouts, step: np.zeros(len(layouts)),
    library_bytes=lambda run: 0.0,
)
"""Data parallelism alone: states are small beside the activations, layouts that offload are refused before, a stack's
workspace holds the libraries', and the doctor probes transformers."""


def counted(model: AnyModel) -> Counted:
    """Returns the functions that count a network of that kind."""
    return CONVOLUTIONAL_NETWORKS if isinstance(model, ConvNetSpec) else TRANSFORMERS
