"""Offload: what leaves the device for the host's memory or NVMe drives, and the seconds that it adds to a step.

Arrays of bytes have the shape [2, L]: first and last pipeline stage (see ``states``). Sections of arXiv 2104.07857 are
cited by recall; its table of model states, 20 bytes for each of 12 layers x width^2 parameters, is a test.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.forecast.memory.states import Kept, MemoryCase, case_of, kept, rank_adapters, shared
from trainwright.spec.device import NodeSpec
from trainwright.spec.run import RunSpec

HOST_UPDATE_S = 0.26e-9
"""One AdamW update of one parameter as a host's memory feeds it: 2.57 s for 10 billion on two Xeon 8168 (Ren et al.,
2021, arXiv 2101.06840, table 4, recall)."""
CORE_UPDATE_S = 0.9e-9
"""The same as one core makes it: ``torch.optim.AdamW(fused=True)`` on 100 million fp32 parameters with one thread of an
AMD EPYC takes 0.087 to 0.105 s (torch 2.13, 2026-12-01). Four cores are as fast as the memory."""
STATE_BUFFERS, SUB_GROUP_PARAMETERS = 4, 1e9
"""Pinned buffers of fp32 elements through which an optimizer's state streams from NVMe: one each for weight, gradient
and both moments (DeepSpeed's ``offload_optimizer.buffer_count``), as long as what is updated at once
(``sub_group_size``, recall)."""
SLOWED = 0.189
"""Of the seconds of a copy over the bus, those by which kernels beside it take longer: the mean beside communication
(arXiv 2507.03114), and about what FSDP's gathers come to (catalog/efficiency.toml, ``sharded``). No published run says
it of copies from host memory."""
OUR_CROSSING_BYTES, OUR_COPY_BYTES = 12.0, 8.0
"""Of a parameter of this trainer (``stages/train/memory/host_optimizer.py``): gradient and weight in fp32 to the host,
the weight back; and the host's room for both."""
WEIGHT_BUFFERS, BUFFER_PARAMETERS = 5, 1e8
"""The same of weights: DeepSpeed's ``offload_param.buffer_count`` and ``buffer_size``."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Offloaded:
    """Bytes [2, L] of one rank: all that left the device (``moved``), where it lives, and its parts."""

    moved: Kept
    host: Numbers
    nvme: Numbers


def offloaded(case: MemoryCase) -> Offloaded:
    """Returns the bytes that one rank keeps off its device.

    On NVMe, host memory still holds the pinned buffers through which it streams (Rajbhandari et al., 2021, arXiv
    2104.07857, section 6.3), or all of it where that is less.
    """
    layouts = case.layouts
    if layouts.has("offload", "none").all():
        none = np.zeros_like(case.stages.total)
        return Offloaded(moved=Kept(weights=none, gradients=none, optimizer=none, update=none), host=none, nvme=none)
    here, everywhere = kept(case), kept(replace(case, layouts=replace(layouts, offload=np.zeros_like(layouts.offload))))
    moved = Kept(**{each.name: getattr(everywhere, each.name) - getattr(here, each.name) for each in fields(Kept)})
    copies = OUR_COPY_BYTES * (case.memory.kernels == "own") * layouts.has("offload", "optimizer")
    total = moved.weights + moved.gradients + moved.optimizer + copies * trained_parameters(case)
    group = np.minimum(SUB_GROUP_PARAMETERS, trained_parameters(case))
    pinned = np.minimum(moved.optimizer, STATE_BUFFERS * 4.0 * group)
    pinned += np.minimum(moved.weights, WEIGHT_BUFFERS * BUFFER_PARAMETERS * case.element_bytes)
    drives = layouts.offloads_to_nvme
    return Offloaded(moved=moved, host=np.where(drives, pinned, total), nvme=np.where(drives, total, 0.0))


def offload_s(run: RunSpec, layouts: Layouts, forward_s: Numbers, backward_s: Numbers) -> Numbers:
    """Returns the seconds [L] on top of a step's passes; infinite where there is no bus to host memory, or no drive.

    ``optimizer``: gradients go to the host and updated weights come back, once a step, and nothing hides it (Ren et
    al., 2021, section 4.1, without its delayed update). ``all``: besides, each micro batch fetches the rank's weights
    for both passes behind the work of the layer before (Rajbhandari et al., 2021, arXiv 2104.07857, section 6.2), so
    that what takes longer than the work of its own pass is seen, and what it slows of that (``SLOWED``). ``frozen``:
    weights beside adapters alone are fetched so; what is trained is updated on the device.

    On NVMe the state is read and written once a step while the host updates what has come (the same, section 5.2.2);
    weights are read for both passes and gradients written once, for each micro batch (section 4.1). The drives are the
    node's, shared by its ranks.
    """
    moved = ~layouts.has("offload", "none")
    if not moved.any():
        return np.zeros(len(layouts))
    node, bus = run.cluster.node, run.cluster.node.bus
    if bus is None:
        return np.where(moved, np.inf, 0.0)
    case = case_of(run.transformer, run.workload, layouts, run.stack.memory)
    gone = offloaded(case).moved
    trained = np.max(trained_parameters(case), axis=0)
    each = OUR_CROSSING_BYTES if case.memory.kernels == "own" else 2 * case.element_bytes
    crossing = each * trained / bus.bytes_per_s
    update = max(HOST_UPDATE_S, CORE_UPDATE_S / (node.cpu_cores or np.inf)) * trained * node.devices
    weights = case.frozen_bytes * np.max(shared(case, from_stage=3), axis=0)
    frozen = layouts.has("offload", "frozen")
    fetches = layouts.micro_batches * weights / bus.bytes_per_s
    behind = [(forward_s, fetches), (backward_s, fetches)]
    if layouts.offloads_to_nvme.any():
        state, parts = np.max(gone.optimizer, axis=0), np.max(gone.gradients, axis=0)
        streamed = nvme_s(node, read=state, written=state)
        drives = (nvme_s(node, read=weights, written=each) for each in (0.0 * parts, parts))
        streams = (np.maximum(fetches, layouts.micro_batches * each) for each in drives)
        behind = [
            (work, np.where(layouts.offloads_to_nvme, streamed, fetches))
            for (work, _), streamed in zip(behind, streams, strict=True)
        ]
        update = np.where(layouts.offloads_to_nvme, np.maximum(update, streamed), update)
    seen = sum((seen_s(work, fetched, fetches) for work, fetched in behind), np.zeros(len(layouts)))
    return np.where(moved & ~frozen, crossing + update, 0.0) + np.where(layouts.offloads_weights, seen, 0.0)


def seen_s(work: Numbers, fetched: Numbers, copied: Numbers) -> Numbers:
    """Returns the seconds [L] by which a pass of so much work is longer with what is fetched behind it.

    ``copied`` are those of it that the bus is busy: slow drives make a pass wait, and slow no kernel.
    """
    return np.asarray(np.maximum(fetched, work + SLOWED * copied) - work)


def nvme_s(node: NodeSpec, *, read: Numbers, written: Numbers) -> Numbers:
    """Returns the seconds [L] in which a node's drives read and write so many bytes of each of its ranks."""
    if not node.nvme_read_bytes_per_s or not node.nvme_write_bytes_per_s:
        return np.full_like(read, np.inf)
    return node.devices * (read / node.nvme_read_bytes_per_s + written / node.nvme_write_bytes_per_s)


def trained_parameters(case: MemoryCase) -> Numbers:
    """Returns the parameters [2, L] whose update one rank of the first and last stage makes."""
    return shared(case, from_stage=1) if case.adapter is None else np.stack([rank_adapters(case, case.adapter)] * 2)
