"""Chooses the micro batch: the largest that fits and does not slow the step down; the others get their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.core.units import format_bytes, format_seconds
from trainwright.planner.activations import MicroBatch
from trainwright.planner.memory import Process, predict_memory
from trainwright.planner.rates import Rates
from trainwright.planner.step_time import step_phases
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Rejected
from trainwright.spec.workload import Workload

SAME_SPEED = 1.02
"""Steps within so much of the fastest one count as equally fast: less than equal machines differ by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """What a layout is judged by: rates, memory, and what a process holds there."""

    kind: str
    rates: Rates
    memory_available_bytes: float
    process: Process
    compiled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One way to run the workload, with what it needs and takes."""

    batch: MicroBatch
    accumulation: int
    memory: MemoryUse
    phases: PhaseTimes
    fits: bool

    @property
    def name(self) -> str:
        """How a user would ask for it."""
        return f"micro_batch={self.batch.sequences}"


def micro_batches(workload: Workload) -> tuple[int, ...]:
    """Sequences of a forward pass that divide the batch evenly, largest first."""
    whole = workload.batch_sequences
    return tuple(size for size in range(whole, 0, -1) if whole % size == 0)


def evaluate(model: ModelSpec, workload: Workload, device: Device, *, sequences: int) -> Layout:
    """Memory and step time with ``sequences`` per forward pass."""
    batch = MicroBatch(
        sequences=sequences, sequence_tokens=workload.sequence_tokens, dtype=workload.precision,
        device_kind=device.kind,
        document_masking=workload.document_masking,
        compiled=device.compiled,
    )  # fmt: skip
    accumulation = -(-workload.batch_sequences // sequences)
    memory = predict_memory(model, workload, batch, device.process, accumulation=accumulation)
    return Layout(
        batch=batch,
        accumulation=accumulation,
        memory=memory,
        phases=step_phases(device.rates, model, workload, batch, accumulation=accumulation),
        fits=memory.total_bytes <= device.memory_available_bytes,
    )


def choose(
    model: ModelSpec, workload: Workload, device: Device, *, sequences: Sequence[int]
) -> tuple[Layout, tuple[Rejected, ...]]:
    """The layout to run, among those with the given micro batches, and why the others are not it.

    Where none fits, the smallest is returned, with ``fits`` false.
    """
    layouts = sorted(
        (evaluate(model, workload, device, sequences=size) for size in sequences),
        key=lambda layout: -layout.batch.sequences,
    )
    fitting = [layout for layout in layouts if layout.fits]
    if not fitting:
        return layouts[-1], tuple(_too_big(layout, device) for layout in layouts[:-1])
    fastest_s = min(layout.phases.total_s for layout in fitting)
    chosen = next(layout for layout in fitting if layout.phases.total_s <= SAME_SPEED * fastest_s)
    rejected = [
        _not_better(layout, chosen) if layout.fits else _too_big(layout, device)
        for layout in layouts
        if layout is not chosen
    ]
    return chosen, tuple(rejected)


def _too_big(layout: Layout, device: Device) -> Rejected:
    need, have = format_bytes(layout.memory.total_bytes), format_bytes(device.memory_available_bytes)
    return Rejected(name=layout.name, reason=f"does not fit: needs {need} of {have}")


def _not_better(layout: Layout, chosen: Layout) -> Rejected:
    step, ratio = layout.phases.total_s, layout.phases.total_s / chosen.phases.total_s
    reason = f"{ratio - 1:.0%} slower" if ratio >= SAME_SPEED else "not faster, and more passes"
    return Rejected(name=layout.name, reason=f"{reason}: {format_seconds(step)} a step")
