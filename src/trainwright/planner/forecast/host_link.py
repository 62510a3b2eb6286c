"""Seconds that a step waits for host memory: paged moments and saved activations; states: ``memory.offload``."""

from __future__ import annotations

import math

import numpy as np

from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.forecast.memory.moments import pass_bytes
from trainwright.planner.forecast.memory.offload import seen_s
from trainwright.planner.forecast.memory.states import case_of
from trainwright.planner.forecast.memory.table import MemoryTable
from trainwright.planner.forecast.time.step import StepTable
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import RunSpec

UNMEASURED = 0.3
"""Deviation of the logarithm of a step's time that offload adds to a run's own: no run of the published tables offloads
weights or states at a stated rate, none on a GPU its activations, and as much is taken of devices that no run is on
(catalog/efficiency.toml, ``doubt.generation``)."""
UNUSUAL = math.exp(UNMEASURED)
"""By how much offloads and more devices have to be faster than what people change first: one such deviation."""


def doubt(run: RunSpec, layouts: Layouts) -> float:
    """Returns ``UNMEASURED`` where states, weights or activations leave the device; else 0."""
    moves = run.workload.activation_offload or not layouts.has("offload", "none").all()
    return UNMEASURED if moves else 0.0


def paged_s(cluster: ClusterSpec, memory: MemoryTable) -> Numbers:
    """Returns the seconds [L] that an update waits for paged moments; infinite where there is no unified memory.

    What has no room on the device crosses the link once in and once out, and nothing hides it: each tensor is fetched
    just before its update (bitsandbytes-foundation/bitsandbytes@95f9af30:bitsandbytes/optim/optimizer.py, ``step``).
    """
    device, bus = cluster.device, cluster.node.bus
    if device.kind != "cuda" or bus is None:
        return np.where(memory.paged > 0, np.inf, 0.0)
    return 2 * memory.evicted_bytes(device) / bus.bytes_per_s


def activations_s(run: RunSpec, layouts: Layouts, step: StepTable) -> Numbers:
    """Returns the seconds [L] that a step waits for activations; infinite where there is no bus to host memory.

    Another stream copies what is saved while the forward pass computes, and back while the backward pass does, so that
    what takes longer than the pass is seen, and what it slows of that (pytorch/torchtune@bd2a0fc7c:
    torchtune/training/_activation_offloading.py, with ``use_streams``).
    """
    bus = run.cluster.node.bus
    if bus is None:
        return np.full(len(layouts), np.inf)
    case = case_of(run.transformer, run.workload, layouts, run.stack.memory)
    # Bytes of one micro batch: a pipeline holds several, each of which crosses once.
    one = np.max(pass_bytes(case).gone / case.stages.passes, axis=0)
    copying = layouts.micro_batches * one / bus.bytes_per_s
    return sum((seen_s(each, copying, copying) for each in (step.forward, step.backward)), np.zeros(len(layouts)))
