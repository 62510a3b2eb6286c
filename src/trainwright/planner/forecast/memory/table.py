"""Peak memory of one device for many layouts at once: by class, as torch and the driver report it, with an interval.

``predict_memory`` takes the worse of the first and the last pipeline stage (or the one asked for) at the worst of a
step's moments (see ``moments``). ``allocated`` is torch's own peak; ``reserved`` adds what its allocator keeps without
use; ``device`` adds the driver's context and communicators, and is what nvidia-smi shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.core.units import GIB, MIB
from trainwright.planner.counts.layouts import Layouts, Numbers
from trainwright.planner.counts.process import COMPILE_BYTES, Process
from trainwright.planner.forecast.memory.moments import bucket_bytes, moments_of, pass_bytes
from trainwright.planner.forecast.memory.offload import offloaded
from trainwright.planner.forecast.memory.stages import Stages
from trainwright.planner.forecast.memory.states import MemoryCase, case_of, kept, paged_bytes
from trainwright.spec.device import DeviceSpec, NodeSpec
from trainwright.spec.measures import MemoryUse
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import MemoryKind, StackMemory

PipelineStage = Literal["worst", "first", "last"]
INTERVAL_DEVIATIONS = 1.28
"""Standard deviations on each side of the prediction: eight of ten measurements of a normal distribution."""
SOURCE_DEVIATION = 0.03
"""What errors of memory grow by, in squares, where their source is left out of the fit: 0.022 as
``benchmarks/fit_memory.py`` prints it (2026-11-30, 604 rows), rounded up."""
BORROWED_DEVIATION = 0.10
"""The same of a stack that has a relative's numbers: an assumption. Of software that nobody names, which has what is
usual of all, the same command prints 0.182; the range of such (``stacks/default.toml``) holds 86 % of the rows."""
ADAPTER_DEVIATION = 0.12
"""Of adapters: their dtype, dropout and upcasts, which people do not say, make a layer keep 42 to 75 bytes for each
token and unit of the width (counted with PEFT 0.21.2 and transformers 5.23.0 in 16 bits); assumed: half of that span,
on four tenths of the peak."""
VARIED_UNUSED = 3.1
"""Of the logits and their copies for examples of the mean length, what torch's allocator keeps in blocks of other sizes
where micro batches have unlike lengths: the median of 57 peaks of reserved memory (modelscope/ms-swift@cdb169b,
docs/source_en/LLM/Benchmark.md, adapters of 512 to 8,192 tokens at most; half of them from 2.6 to 4.2). Blocks of saved
activations are smaller and come in few sizes (multiples of 2 MiB), so that one length uses another's again: with and
without recomputation the number is the same."""
VARIED_DEVIATION = 0.15
"""What that is uncertain by, of the peak."""
USABLE_SHARE = 0.985
"""Of a board's nominal GiB, what a process can have: 79.15 of 80 on an A100, 31.7 of 32 on a V100."""
USABLE_HOST_SHARE = 0.95
"""Of a host's memory that is available now: other programs breathe."""
FITS_DEVIATIONS, FAILS_DEVIATIONS = 2.0, 0.25
"""A verdict is certain from so many standard deviations below and above the device's memory on: "fits" has to be
dependable, for a run that dies of memory costs more than a try."""
NEEDED_SLACK = 0.02
"""Share of allocated bytes that fragmentation costs at least, even when the allocator has to give its cache back."""
STUCK_SHARE = 0.3
"""Of what a stack's allocator holds beyond allocated bytes, the share that lies in segments whose other part is in use:
those cannot be given back. With more of it runs that ran are refused, with less runs that died are called fitting."""
NEEDED_CONTEXT_BYTES = 0.6e9
"""The CUDA context of one process with its libraries' kernels loaded, without communicators."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryTable:
    """Bytes [L] by the classes of ``MemoryUse`` at the peak.

    ``context`` is outside of torch; ``stuck`` the part of ``reserved_unused`` that is never given back; ``spread`` the
    standard deviation of the logarithm of measured over predicted; ``last_stage`` where the second of two
    ``Stages`` is the worst; ``moment`` the place of the peak in ``MOMENTS``; ``host_bytes`` what offload puts into one
    node's memory, ``nvme_bytes`` onto its drives. ``paged`` are a rank's moments in unified memory, which none of the
    classes has: they fill what the rest leaves of the device, and the node's memory holds the others.
    """

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    activations: Numbers
    logits: Numbers
    communication: Numbers
    workspace: Numbers
    reserved_unused: Numbers
    context: Numbers
    stuck: Numbers
    spread: Numbers
    last_stage: NDArray[np.bool_]
    moment: NDArray[np.intp]
    host_bytes: Numbers
    nvme_bytes: Numbers
    paged: Numbers

    @cached_property
    def allocated_bytes(self) -> Numbers:
        """Returns the peak of torch's allocated bytes."""
        named = (self.weights, self.gradients, self.optimizer, self.activations, self.logits)
        return np.asarray(np.add.reduce(named) + self.communication + self.workspace)

    @property
    def reserved_bytes(self) -> Numbers:
        """Returns the peak of torch's reserved bytes."""
        return self.allocated_bytes + self.reserved_unused

    @cached_property
    def device_bytes(self) -> Numbers:
        """Returns the bytes that the driver shows."""
        return self.reserved_bytes + self.context

    @cached_property
    def needed_bytes(self) -> Numbers:
        """Returns the least that a device must have: its allocator gives unused blocks back before it gives up."""
        return self.allocated_bytes + self.stuck + np.minimum(self.context, NEEDED_CONTEXT_BYTES)

    def total_bytes(self, device: DeviceSpec) -> Numbers:
        """Returns the peak as a plan prints it: what is kept unused in it gives way to what is needed."""
        shown = np.where(self.device_bytes <= usable_bytes(device), self.device_bytes, self.needed_bytes)
        return shown + self.resident_bytes(shown, device)

    def resident_bytes(self, beside: Numbers, device: DeviceSpec) -> Numbers:
        """Returns the paged moments that have room on the device, where so much is there ``beside`` them."""
        return np.clip(usable_bytes(device) - beside, 0.0, self.paged)

    def evicted_bytes(self, device: DeviceSpec) -> Numbers:
        """Returns the paged moments of a rank that host memory holds: torch gives nothing back for their sake."""
        return self.paged - self.resident_bytes(self.device_bytes, device)

    def node_bytes(self, node: NodeSpec) -> Numbers:
        """Returns what one node's memory holds: what is offloaded, and paged moments without room on the devices."""
        return self.host_bytes + node.devices * self.evicted_bytes(node.device)

    def reported(self, kind: MemoryKind, device: DeviceSpec | None = None) -> Numbers:
        """Returns the peak by one of the three definitions.

        On a ``device`` an allocator keeps no more unused than has room there beside what is used: where it asks in vain
        it gives all of that back, and asks again.
        """
        if kind == "allocated":
            return self.allocated_bytes
        unused = self.reserved_unused
        if device is not None:
            room = usable_bytes(device) - self.allocated_bytes - np.minimum(self.context, NEEDED_CONTEXT_BYTES)
            unused = np.minimum(unused, np.maximum(0.0, room))
        return self.allocated_bytes + unused + (self.context if kind == "device" else 0.0)

    def interval(self, kind: MemoryKind, device: DeviceSpec | None = None) -> tuple[Numbers, Numbers]:
        """Returns low and high of what is ``reported``: eight of ten measurements lie between."""
        factor = np.exp(INTERVAL_DEVIATIONS * self.spread)
        middle = self.reported(kind, device)
        return middle / factor, middle * factor

    def fits_host(self, node: NodeSpec) -> NDArray[np.bool_]:
        """Returns True [L] where what left the device fits into a node's memory, if that is known, and its drives."""
        host = np.inf if node.host_memory_bytes is None else node.host_memory_bytes
        fits: NDArray[np.bool_] = (self.node_bytes(node) <= host) & (self.nvme_bytes <= (node.nvme_bytes or 0))
        return fits

    def use(self, place: int) -> MemoryUse:
        """Returns one layout's classes; the context counts as workspace."""
        parts = {name: float(getattr(self, name)[place]) for name in MemoryUse.names()}
        return MemoryUse.from_mapping({**parts, "workspace": parts["workspace"] + float(self.context[place])})

    def fits(self, device: DeviceSpec) -> NDArray[np.bool_]:
        """Returns True [L] where a process can have the bytes that are needed."""
        fits: NDArray[np.bool_] = self.needed_bytes <= usable_bytes(device)
        return fits

    def uncertain(self, device: DeviceSpec) -> NDArray[np.bool_]:
        """Returns True [L] where the device's memory lies too near to what is needed to be certain of ``fits``."""
        distance = np.log(self.needed_bytes / usable_bytes(device)) / self.spread
        uncertain: NDArray[np.bool_] = (distance > -FITS_DEVIATIONS) & (distance < FAILS_DEVIATIONS)
        return uncertain

    def doubt(self, device: DeviceSpec) -> NDArray[np.int_]:
        """Returns [L] 0 where ``fits`` is certain, 1 where it is not, 2 where it fails in more than one of ten runs."""
        fails = self.needed_bytes * np.exp(INTERVAL_DEVIATIONS * self.spread) > usable_bytes(device)
        doubt: NDArray[np.int_] = self.uncertain(device) * (1 + fails)
        return doubt


def predict_memory(
    run: RunSpec,
    layouts: Layouts,
    *,
    stage: PipelineStage = "worst",
    process: Process | None = None,
    stages: Stages | None = None,
) -> MemoryTable:
    """Returns the peak memory of one device of each layout of a transformer.

    Args:
        run: what is trained, where, and by what software.
        layouts: of the run's cluster.
        stage: of a pipeline.
        process: what the doctor measured of a process of our trainer; None: what the stack's file says.
        stages: what is there of the model (``stages_at``); None: what a first and a last stage have.
    """
    case = _case(run, layouts, process, stages)
    memory, states, step = case.memory, kept(case), pass_bytes(case)
    moments = moments_of(case, states, step)
    totals = np.array([moment.total for moment in moments])
    which = np.argmax(totals, axis=0)
    peak = np.max(totals, axis=0) + states.weights + states.optimizer
    at = _stages_asked(case, stage, peak)
    each = np.arange(len(layouts))
    worst = which[at, each]

    def here(values: Numbers) -> Numbers:
        """Returns the stage's numbers of [2, L]."""
        return np.asarray(values[at, each])

    def then(name: str) -> Numbers:
        """Returns the class at the worst moment, on that stage."""
        return np.asarray(np.array([getattr(moment, name) for moment in moments])[worst, at, each])

    parts = {name: then(name) for name in ("gradients", "activations", "logits")}
    parts["weights"], parts["optimizer"] = here(states.weights), here(states.optimizer)
    parts["communication"] = then("communication") + here(bucket_bytes(case, states))
    parts["workspace"] = then("workspace") + memory.workspace_bytes + library_bytes(case.model, run.cluster.device)
    if process is not None:
        whole = {"gradients": states.gradients, "activations": step.saved, "logits": step.logits}
        parts = _as_reported(parts, {name: here(values) for name, values in whole.items()})
        parts["workspace"] = parts["workspace"] + process.baseline_bytes + COMPILE_BYTES * layouts.compile
    allocated = np.add.reduce(list(parts.values()))
    idle = here(np.where(which == 0, step.inside, step.logits - step.kept_logits))
    one, elsewhere = np.ones_like(allocated), offloaded(case)
    return MemoryTable(
        **parts,
        reserved_unused=memory.fragmentation * allocated + memory.idle * idle + _of_other_lengths(run, parts),
        context=memory.context_bytes * one,
        stuck=(stuck_share(memory) if process is None else 0.0) * allocated,
        spread=(memory.spread if process else deviation(run)) * one,
        last_stage=(at == 1) & (layouts.pp > 1),
        moment=worst,
        host_bytes=(here(elsewhere.host) + here(step.gone)) * run.cluster.node.devices,
        nvme_bytes=here(elsewhere.nvme) * run.cluster.node.devices,
        paged=here(paged_bytes(case)),
    )


def _stages_asked(case: MemoryCase, stage: PipelineStage, peak: Numbers) -> Numbers:
    """Returns which of two stages each layout is asked for; the last rank of two ways has both ends, as the first."""
    if stage == "worst":
        return np.asarray(np.argmax(peak, axis=0))
    two_ways = case.layouts.has("schedule", "dualpipe") & (case.memory.kernels != "own")
    return np.asarray(np.where(two_ways, 0, int(stage == "last")))


def _as_reported(parts: Mapping[str, Numbers], whole: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Returns classes as our trainer reports them: each at its own largest, workspace what is left of the peak."""
    largest = {**parts, **whole}
    rest = sum(parts.values()) - sum(largest[name] for name in parts if name != "workspace")
    return largest | {"workspace": np.maximum(rest, 0.0)}


def _case(run: RunSpec, layouts: Layouts, process: Process | None, stages: Stages | None) -> MemoryCase:
    return case_of(
        *(run.transformer, run.workload, layouts, run.stack.memory),
        device_kind=run.cluster.device.kind,
        process=process,
        kernels=run.kernels,
        stages=stages,
    )


def _of_other_lengths(run: RunSpec, parts: Mapping[str, Numbers]) -> Numbers | float:
    """Returns the bytes of blocks that torch's allocator keeps from micro batches of other lengths."""
    mean = run.workload.example_tokens
    if mean is None or run.cluster.device.kind == "cpu":
        return 0.0
    return VARIED_UNUSED * parts["logits"] * min(1.0, mean / run.workload.sequence_tokens)


def deviation(run: RunSpec) -> float:
    """Returns the deviation of the logarithm of measured over predicted peak: the stack's own and what adds to it."""
    added = [SOURCE_DEVIATION]
    if run.stack.memory_of != run.stack.name:
        added.append(BORROWED_DEVIATION)
    if run.workload.adapter is not None:
        added.append(ADAPTER_DEVIATION)
    if run.workload.example_tokens is not None:
        added.append(VARIED_DEVIATION)
    return math.hypot(run.stack.memory.spread, *added)


def stuck_share(memory: StackMemory) -> float:
    """Returns the share of allocated bytes that fragmentation keeps unusable."""
    return max(NEEDED_SLACK, STUCK_SHARE * memory.fragmentation)


def library_bytes(model: ModelSpec, device: DeviceSpec) -> float:
    """Returns cuBLAS's workspace: 32 MiB from compute capability 9.0 on, 8 MiB before (its manual, "workspaces").

    Grouped products of experts run on four more streams with a workspace each (Transformer Engine).
    """
    if device.kind != "cuda" or device.compute_capability is None:
        return 0.0
    one = 32.0 * MIB if float(device.compute_capability) >= 9 else 8.0 * MIB
    return one * (1 if model.experts is None else 5)


def visible_bytes(device: DeviceSpec) -> float:
    """Returns the bytes that a driver shows of a device: boards are sold in GB and hold as many GiB."""
    return device.visible_bytes or device.memory_bytes / 1e9 * GIB


def usable_bytes(device: DeviceSpec) -> float:
    """Returns the bytes of a device that a process can use."""
    return visible_bytes(device) * (USABLE_HOST_SHARE if device.kind == "cpu" else USABLE_SHARE)
