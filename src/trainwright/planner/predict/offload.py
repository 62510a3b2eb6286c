"""Seconds that offload adds to a step: what crosses the host's bus, and the update on the host's cores."""

from __future__ import annotations

import numpy as np

from trainwright.planner.predict.layouts import Layouts, Numbers
from trainwright.planner.predict.states import Case, adapter_parameters, case_of, shared
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Workload

HOST_UPDATE_S = 0.26e-9
"""One AdamW update of one parameter on all cores of a node: 2.57 s for 10 billion on two Xeon 8168 (Ren et al., 2021,
arXiv 2101.06840, table 4, recall)."""


def offload_s(
    model: ModelSpec, workload: Workload, layouts: Layouts, cluster: ClusterSpec, stack: Stack, *, step_s: Numbers
) -> Numbers:
    """Seconds [L] that come on top of ``step_s``; infinite where there is no bus to host memory.

    ``optimizer``: gradients go to the host and updated weights come back, once a step, and nothing hides it (Ren et
    al., 2021, section 4.1, without its delayed update). ``all``: besides, each micro batch fetches the rank's weights
    for both passes behind the work of the layer before (Rajbhandari et al., 2021, arXiv 2104.07857, section 6.2), so
    that only what takes longer than that work is seen.
    """
    moved = ~layouts.has("offload", "none")
    if not moved.any():
        return np.zeros(len(layouts))
    bus = cluster.node.bus
    if bus is None:
        return np.where(moved, np.inf, 0.0)
    case = case_of(model, workload, layouts, stack.memory)
    trained = np.max(trained_parameters(case), axis=0)
    crossing = 2 * case.element_bytes * trained / bus.bytes_per_s
    update = HOST_UPDATE_S * trained * cluster.node.devices
    weights = case.frozen_bytes * np.max(shared(case, from_stage=3), axis=0)
    fetches = 2 * layouts.micro_batches * weights / bus.bytes_per_s
    seen = np.maximum(fetches - step_s, 0.0)
    return np.where(moved, crossing + update, 0.0) + np.where(layouts.has("offload", "all"), seen, 0.0)


def trained_parameters(case: Case) -> Numbers:
    """Parameters [2, L] whose update one rank of the first and last stage makes."""
    if case.adapter is None:
        return shared(case, from_stage=1)
    layouts = case.layouts
    each = adapter_parameters(case.model, case.adapter) / (layouts.tp * layouts.pp)
    each = each / np.where(layouts.zero_stage >= 3, layouts.dp_shard, 1.0)
    return np.stack([each, each])
