"""What finished runs of this machine say about a plan of it.

Each run of the ledger is predicted anew, as the plan is, from today's probes or facts; what its measured step and peak
were off by is a value of the Gaussian process of ``planner.calibration``, with deviations of this machine in place of
published runs'. They are estimated from the runs themselves where they are larger than expected (empirical Bayes: Efron
and Morris, 1973): a machine whose runs all take twice as long is believed to do so; two runs of one shape that differ
by two widen the range.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.core.units import format_bytes
from trainwright.hardware.machine import MachineFacts
from trainwright.hardware.stacks import stack
from trainwright.planner.calibration import Correction, Prior, expected
from trainwright.planner.layout import Device, Layout, evaluate
from trainwright.planner.local import Local
from trainwright.planner.predict.request import Request
from trainwright.planner.published.finished import FinishedRun, Ledger, said_of
from trainwright.spec.measures import MemoryUse
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Estimate, Interval
from trainwright.spec.workload import ParallelPlan, Workload

NEWEST = 64
"""Runs that a plan learns from at most, the newest: a millisecond for each."""
RANGE = 1.645
"""Standard deviations of a range that holds nine runs of ten."""
RUN_NOISE, MEMORY_NOISE = 0.05, 0.02
"""Standard deviation of one run against another of the same shape on one machine that does little else: a laptop's
clock, other programs; of the peak of resident memory."""
MEMORY_BIAS, MEMORY_SHAPE = 0.05, 0.05
SURPRISE = 2.0
"""Standard deviations within which a run is no surprise."""
SAME_MEMORY = 0.05
"""Machines whose memory differs by less than this share are one: kernels reserve more or less of it."""

Remake = Callable[[ModelSpec, int, bool], Local]
"""The machine as a plan of a model sees it: model, tokens of a sequence, compiled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learnt:
    """Factors of speed and memory, the range of the time as factors, and what all that rests on.

    ``used`` are the runs; ``left_out`` says why others were not, in words with their number.
    """

    correction: Correction = field(default_factory=Correction)
    spread: tuple[float, float] = (1.0, 1.0)
    used: tuple[FinishedRun, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What a plan says of it; nothing where there is no ledger."""
        if not self.used and not self.left_out:
            return ()
        found, rest = self.correction, "; ".join(self.left_out)
        if not self.used:
            return (Assumption(name="finished runs", value="none like this", unit="", origin="ledger", source=rest),)
        said = f"speed x {found.speed:.3g}, memory x {found.memory:.3g}"
        source = f"calibrated by {said_of(self.used)}; {found.known:.0%} of the uncertainty explained"
        low, high = self.spread
        return (
            Assumption(name="finished runs", value=said, unit="", origin="ledger",
                       source=f"{source}; {rest}" if rest else source),
            Assumption(name="range of the time", value=f"{low:.3g} to {high:.3g}", unit="x", origin="ledger",
                       source="what those runs leave open, and what they differ by among themselves"),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What is planned, and where; ``remake`` is the machine as a plan of another model sees it."""

    facts: MachineFacts
    here: Local
    model: ModelSpec
    workload: Workload
    threads: int | None
    remake: Remake


def learn(ledger: Ledger, case: Case, layout: Layout) -> Learnt:
    """What the ledger's runs on this machine, with this torch, say about a layout of the case's workload."""
    reasons: Counter[str] = Counter()
    used: list[FinishedRun] = []
    values: list[tuple[Request, float, float]] = []
    for run in ledger.runs:
        reason = _foreign(run, case)
        if reason is None and len(used) == NEWEST:
            reason = f"older than the newest {NEWEST}"
        if reason is not None:
            reasons[reason] += 1
            continue
        remade = case.remake(run.model, run.workload.sequence_tokens, run.compile)
        known = evaluate(run.model, run.workload, remade.device, sequences=run.micro_batch)
        speed, memory = known.phases.total_s / run.step_s, run.peak_bytes / known.memory.total_bytes
        there = _request(run.model, run.workload, case.here, run.micro_batch, compiled=run.compile)
        values.append((there, math.log(speed), math.log(memory)))
        used.append(run)
    left_out = [f"{count} left out: {reason}" for reason, count in reasons.items()]
    if ledger.broken:
        count = len(ledger.broken)
        left_out.append(f"{count} line{'s' if count > 1 else ''} that cannot be read skipped")
    if not used:
        return Learnt(left_out=tuple(left_out))
    asked = _request(case.model, case.workload, case.here, layout.batch.sequences, compiled=layout.batch.compiled)
    return _conclude(asked, values, case.here, used=tuple(used), left_out=tuple(left_out))


def _conclude(
    asked: Request, values: Sequence[tuple[Request, float, float]], here: Local, *, used: tuple[FinishedRun, ...],
    left_out: tuple[str, ...],
) -> Learnt:  # fmt: skip
    before = time_prior(here.surroundings.spread)
    prior = adapted(before, [speed for _, speed, _ in values])
    speed, known = expected(asked, [(request, value) for request, value, _ in values], prior)
    of_memory = Prior(bias=MEMORY_BIAS, shape=MEMORY_SHAPE, noise=MEMORY_NOISE)
    of_memory = adapted(of_memory, [memory for _, _, memory in values])
    memory, _ = expected(asked, [(request, value) for request, _, value in values], of_memory)
    # What is not known of the machine at this shape, no more than was unknown before, and a single run's own noise.
    left = math.hypot(before.deviation * math.sqrt(max(0.0, 1 - known)), prior.noise)
    factor = math.exp(RANGE * left)
    return Learnt(
        correction=Correction(speed=math.exp(speed), memory=math.exp(memory), known=known),
        spread=(1 / factor, factor), used=used, left_out=left_out,
    )  # fmt: skip


def time_prior(spread: tuple[float, float]) -> Prior:
    """Deviations that a range of the time comes from; half of the variance is the machine's, half the shape's."""
    deviation = math.log(spread[1] / spread[0]) / 2 / RANGE
    return Prior(bias=deviation / math.sqrt(2), shape=deviation / math.sqrt(2), noise=RUN_NOISE)


def adapted(prior: Prior, values: Sequence[float]) -> Prior:
    """The prior with what the runs themselves say of its deviations; nothing is cut off.

    The bias is at least the runs' root mean square. Noise is at least what each differs from the mean of the others by,
    beyond what was to be expected; for a single run the prediction is the other.
    """
    found, count = np.asarray(values), len(values)
    others = (found.sum() - found) / (count - 1) if count > 1 else np.zeros(1)
    surprise = np.maximum(0.0, np.abs(found - others) - SURPRISE * prior.deviation)
    share = (count - 1) / count if count > 1 else 0.5
    return Prior(
        bias=max(prior.bias, float(np.sqrt(np.mean(found**2)))), shape=prior.shape,
        noise=math.hypot(prior.noise, float(np.sqrt(share * np.mean(surprise**2)))), believed=math.inf,
    )  # fmt: skip


def _foreign(run: FinishedRun, case: Case) -> str | None:
    """Why a run says nothing about this machine; None where it does."""
    here, facts = case.here, case.facts
    node = here.cluster.node
    if (run.device, run.devices, run.cores) != (here.cluster.device.name, here.cluster.devices, node.cpu_cores):
        cores = "" if run.cores is None else f", {run.cores} cores"
        return f"of another machine ({run.device}{cores})"
    if not run.host_memory_bytes or abs(run.host_memory_bytes / facts.memory_bytes - 1) > SAME_MEMORY:
        return f"of another machine (memory {format_bytes(run.host_memory_bytes or 0)})"
    if _release(run.torch) != _release(facts.torch):
        return f"of another torch ({run.torch})"
    if run.threads != case.threads:
        return f"with {run.threads} threads in place of {case.threads}"
    if run.workload.precision not in here.peak_flops_per_s:
        return f"in {run.workload.precision}, which was not probed here"
    return None


def _release(version: str | None) -> str | None:
    """``2.9`` of ``2.9.1+cpu``: what a version's speed follows."""
    return None if version is None else ".".join(version.split("+")[0].split(".")[:2])


def _request(model: ModelSpec, workload: Workload, here: Local, sequences: int, *, compiled: bool) -> Request:
    return Request(
        model=model, workload=workload, cluster=here.cluster, stack=stack("trainwright"),
        parallel=ParallelPlan(micro_batch_sequences=sequences, compile=compiled),
    )  # fmt: skip


def room(device: Device, learnt: Learnt) -> Device:
    """The device with as much less memory to plan for as runs needed more than was predicted."""
    return replace(device, memory_available_bytes=device.memory_available_bytes / max(1.0, learnt.correction.memory))


def calibrated(found: Estimate, learnt: Learnt, *, available_bytes: float) -> Estimate:
    """The estimate with what was learnt: steps and validation scaled, the range of the time that is left.

    Weights, gradients and the optimizer's state are certain; the rest of the peak takes the difference.
    """
    notes = learnt.assumptions
    kept = tuple(each for each in found.assumptions if each.name not in {note.name for note in notes})
    if not learnt.used:
        return replace(found, assumptions=(*kept, *notes))
    slower = 1 / learnt.correction.speed
    once = {"checkpoint": found.run_phases.checkpoint, "other": found.run_phases.other}
    run = replace(found.run_phases.scaled(slower), **once)
    low, high = learnt.spread
    memory = _memory(found.memory, learnt.correction.memory)
    return replace(
        found, phases=found.phases.scaled(slower), run_phases=run, tokens_per_s=found.tokens_per_s / slower,
        mfu=found.mfu / slower, seconds=Interval(low=low * run.total_s, mid=run.total_s, high=high * run.total_s),
        memory=memory, memory_available_bytes=available_bytes, fits=memory.total_bytes <= available_bytes,
        assumptions=(*kept, *notes),
    )  # fmt: skip


def _memory(use: MemoryUse, factor: float) -> MemoryUse:
    certain = use.weights + use.gradients + use.optimizer
    spare = use.total_bytes - certain
    scale = max(0.0, 1 + (factor - 1) * use.total_bytes / spare) if spare else 1.0
    return replace(use, **{
        name: getattr(use, name) * scale
        for name in ("activations", "logits", "communication", "workspace", "reserved_unused")
    })  # fmt: skip
