"""A whole plan of a run on a cluster: verdict, memory, phases, time, money, and all that it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainwright.planner.assumptions import RANK_HOST_BYTES, assumed
from trainwright.planner.calibration import Correction, corrected, correction
from trainwright.planner.choose import Choice, choose, mesh
from trainwright.planner.flops import count_flops
from trainwright.planner.parameters import parameter_counts
from trainwright.planner.predict.bubble import idle_s
from trainwright.planner.predict.forecast import Forecast
from trainwright.planner.predict.layouts import Numbers
from trainwright.planner.predict.request import Request
from trainwright.planner.predict.step import StepTable, combine
from trainwright.planner.question import Scenario
from trainwright.planner.run import RunCost, run_cost
from trainwright.planner.search.changes import changes
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.plan import Assumption, Estimate, Fit, Interval, Needs, Plan, Rejected, Share
from trainwright.spec.workload import Recompute, Workload

DOUBTED = 2.0
"""A measured run that is so many times faster or slower than predicted is said to be."""

COMPUTE: Mapping[str, tuple[str, ...]] = {
    "matrix products of the blocks": ("products_s", "unaligned_s", "operands_s"),
    "attention": ("attention_s", "short_s", "scores_s"),
    "memory traffic between the products": ("traffic_s", "encoder_s", "casts_s"),
    "the output head and the loss": ("head_s", "loss_s"),
    "launching kernels from the host": ("kernels", "expert_layers"),
    "the optimizer's update": ("update_s", "orthogonal_s"),
}
"""Kinds of work on a device, and the counts of ``Work`` that are theirs."""
SENT: Mapping[str, tuple[str, ...]] = {
    "tensor parallelism": ("tensor_s",),
    "context parallelism": ("context_s",),
    "expert parallelism": ("expert_s",),
    "pipeline sends": ("pipeline_s",),
    "sharded weights and gradients": ("gather_s", "scatter_s"),
    "gradients once a step": ("gradients_s",),
}
"""Kinds of communication, and the fields of ``Exchange`` that are theirs."""
TOGETHER = ("expert parallelism", "pipeline sends")
"""What bidirectional pipelines hide together."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Planned:
    """A plan with what it was computed from, for explanations."""

    plan: Plan
    scenario: Scenario
    choice: Choice
    run: RunCost


def plan_run(scenario: Scenario) -> Plan:
    """The plan of a scenario; see ``planned``."""
    return planned(scenario).plan


def planned(scenario: Scenario) -> Planned:
    """The plan of a scenario, and the forecast that it comes from.

    Raises:
        RecipeError: a layout that cannot run, a device without a rate for the precision, a link that is not known.
    """
    choice = choose(scenario)
    workload = replace(scenario.workload, recompute=choice.recompute)
    choice, piped = _played(scenario, choice)
    learnt = _learnt(scenario, workload, choice)
    if learnt != Correction():
        choice = replace(choice, found=corrected(choice.found, learnt))
    found = choice.found
    price = scenario.price
    run = run_cost(
        found, scenario.model, workload, scenario.cluster, scenario.stack, total_tokens=workload.total_tokens,
        usd_per_device_hour=None if price is None else price.usd_per_device_hour, settings=scenario.settings,
    )  # fmt: skip
    estimate = _estimate(scenario, workload, choice, run)
    more = (*piped, *((_measured_runs(scenario, learnt),) if scenario.references else ()))
    estimate = replace(estimate, assumptions=(*estimate.assumptions, *more))
    plan = Plan(
        model=scenario.model, parameters=parameter_counts(scenario.model), workload=workload, cluster=scenario.cluster,
        parallel=choice.parallel, estimate=estimate, rejected=choice.rejected,
    )  # fmt: skip
    return Planned(plan=plan, scenario=scenario, choice=choice, run=run)


def _played(scenario: Scenario, choice: Choice) -> tuple[Choice, tuple[Assumption, ...]]:
    """The choice with its pipeline played out, and what that rests on; nothing changes where there is none."""
    found = choice.found
    if isinstance(scenario.model, ConvNetSpec):
        return choice, ()
    idle = idle_s(scenario.model.blocks, found.work, found.sent, found.layouts, found.rates)
    if idle is None:
        return choice, ()
    played = replace(found, step=replace(found.step, idle=np.array([idle])))
    shares = [float(each.step.idle[0] / each.step_s[0]) for each in (played, found)]
    parallel = choice.parallel
    said = Assumption(
        name="pipeline", value=f"{shares[0]:.1%} idle", unit="", origin="default",
        source=f"{parallel.schedule} of {parallel.pp} stages and {found.layouts.micro_batches[0]:,.0f} micro batches, "
        f"played out; {shares[1]:.1%} in closed form, all stages equal",
    )  # fmt: skip
    return replace(choice, found=played), (said,)


def _learnt(scenario: Scenario, workload: Workload, choice: Choice) -> Correction:
    """What measured runs say about the chosen layout; nothing without any, or for a network that is no transformer."""
    if not scenario.references or isinstance(scenario.model, ConvNetSpec):
        return Correction()
    request = Request(
        model=scenario.model,
        workload=workload,
        parallel=choice.parallel,
        cluster=scenario.cluster,
        stack=scenario.stack,
    )
    return correction(request, scenario.references)


def _measured_runs(scenario: Scenario, learnt: Correction) -> Assumption:
    given = scenario.references
    origin = scenario.references_from or f"--calibrate: {len(given)} given"
    said = f"speed x {learnt.speed:.3g}, memory x {learnt.memory:.3g}"
    why = f"{learnt.known:.0%} of the uncertainty explained"
    if learnt == Correction():
        said = "nothing learnt"
        others = {f"{each.request.cluster.device.name} with {each.request.stack.name}" for each in given}
        why = f"of {', '.join(sorted(others))}, and not {scenario.cluster.device.name} with {scenario.stack.name}"
    doubtful = [each for each in given if each.log_speed is not None and abs(each.log_speed) > math.log(DOUBTED)]
    if doubtful and learnt != Correction():
        ratio = math.exp(doubtful[0].log_speed or 0.0)
        why += f"; one is {ratio:.3g} x as fast as predicted, believed in part (tokens of one device?)"
    return Assumption(name="measured runs", value=said, unit="", origin="ledger", source=f"{origin}; {why}")


def ways_to_fit(found: Planned) -> tuple[Rejected, ...]:
    """What would make the run fit, least slowdown first; another layout before all else.

    Raises:
        RecipeError: see ``planned``.
    """
    scenario = found.scenario
    if isinstance(scenario.model, ConvNetSpec):
        return ()
    ways = []
    if scenario.layout or scenario.recompute is not None:
        other = choose(replace(scenario, layout={}, recompute=None))
        if bool(other.found.fits[0]):
            ways.append(Rejected(name=f"--layout auto: {mesh(other.parallel, other.recompute)}", reason="fits"))
    for change in changes(scenario.model, found.plan.workload, scenario.cluster, scenario.stack):
        less = "; trains adapters alone" if change.trains_less else ""
        ways.append(Rejected(name=change.name, reason=f"{change.slowdown:.2f} x the device-time{less}"))
    return tuple(ways)


def _estimate(scenario: Scenario, workload: Workload, choice: Choice, run: RunCost) -> Estimate:
    found = choice.found
    shares = work_shares(found)
    largest = max(shares, key=lambda share: share.seconds)
    step_s = float(found.step_s[0])
    low, high = found.memory.interval("device")
    mfu = float(found.mfu[0])
    available = found.available_bytes
    fit = verdict(found)
    return Estimate(
        fits=fit != "does not fit",
        fit=fit,
        memory=_memory(found, available),
        memory_available_bytes=available,
        memory_interval=Interval(low=float(low[0]), mid=float(found.memory.device_bytes[0]), high=float(high[0])),
        phases=_phases(found),
        run_phases=_run_phases(found, run),
        tokens_per_s=workload.batch_tokens / step_s,
        mfu=mfu,
        hfu=mfu * _recomputed_share(scenario, choice.recompute),
        seconds=Interval(low=float(run.low_s[0]), mid=float(run.seconds[0]), high=float(run.high_s[0])),
        usd=_interval(run.usd_low, run.usd, run.usd_high),
        bottleneck=f"{largest.name} ({largest.seconds / step_s:.0%} of a step)",
        shares=shares,
        exposed=exposed(found),
        needs=_needs(scenario, choice, run),
        assumptions=(*scenario.assumptions, *assumed(scenario, workload, choice, run)),
    )


def verdict(found: Forecast) -> Fit:
    """Whether the one layout's peak is below the device's memory, above, or too near to it to say.

    What is offloaded has to fit into the host's memory or onto its drives too.
    """
    if not found.memory.fits_host(found.cluster.node)[0]:
        return "does not fit"
    if bool(found.uncertain[0]):
        return "uncertain"
    return "fits" if bool(found.fits[0]) else "does not fit"


def _memory(found: Forecast, available_bytes: float) -> MemoryUse:
    """The peak by class; where that is more than the device has, with as little unused as the allocator can do with."""
    use = found.memory.use(0)
    if use.total_bytes <= available_bytes:
        return use
    least = float(found.memory.needed_bytes[0]) - (use.total_bytes - use.reserved_unused)
    return replace(use, reserved_unused=min(use.reserved_unused, max(0.0, least)))


def _phases(found: Forecast) -> PhaseTimes:
    step = found.step
    return PhaseTimes(
        forward=float(step.forward[0]), backward=float(step.backward[0]), communicate=float(step.communicate[0]),
        update=float(step.update[0]), other=float(step.host[0] + step.idle[0]),
    )  # fmt: skip


def _run_phases(found: Forecast, run: RunCost) -> PhaseTimes:
    steps = _phases(found).scaled(run.steps)
    parts = run.parts
    lost = parts.lost_s + parts.recovery_s + parts.start_s + parts.overhead_s + parts.stragglers_s + parts.ramp_up_s
    return replace(
        steps, evaluate=float(parts.evaluation_s[0]), checkpoint=float(parts.checkpoints_s[0]),
        other=steps.other + float(lost[0]),
    )  # fmt: skip


def work_shares(found: Forecast) -> tuple[Share, ...]:
    """Each kind of work by what the step would be shorter by without it; what overlaps counts for the longer one."""
    found = bound_by(found, lambda step: step.total_s)
    whole, pace = combine(found.work, found.sent, found.layouts, found.rates), _pace(found)
    without = {kind: step_without(found, *names) for kind, names in COMPUTE.items()}
    shares = [
        Share(name=kind, seconds=pace * float((whole.total_s - step.total_s)[0])) for kind, step in without.items()
    ]
    shares.append(Share(name="exposed communication", seconds=float(found.step.communicate[0])))
    shares.append(Share(name="the pipeline's idle time", seconds=float(found.step.idle[0])))
    shares.append(Share(name=_offload_to(found), seconds=float(found.step.update[0] - pace * whole.update[0])))
    return tuple(sorted(_real(shares, float(found.step_s[0])), key=lambda share: -share.seconds))


def _offload_to(found: Forecast) -> str:
    return "offload to NVMe" if found.layouts.offloads_to_nvme[0] else "offload to the host"


def _pace(found: Forecast) -> float:
    """How much longer measured runs say that everything takes; see ``calibration.corrected``."""
    whole = combine(found.work, found.sent, found.layouts, found.rates)
    return float(found.step.forward[0] / whole.forward[0])


def exposed(found: Forecast) -> tuple[Share, ...]:
    """Each kind of communication by what the step would be shorter by without it, but for idle time.

    What is hidden together, and stands out together, is divided as each would stand out alone.
    """
    saved = {kind: _saved_s(found, *names) for kind, names in SENT.items()}
    apart = sum(saved[kind] for kind in TOGETHER)
    joint = _saved_s(found, *(name for kind in TOGETHER for name in SENT[kind])) / apart if apart > 0 else 1.0
    shares = [
        Share(name=kind, seconds=_pace(found) * seconds * (joint if kind in TOGETHER else 1.0))
        for kind, seconds in saved.items()
    ]
    return tuple(_real(shares, float(found.step_s[0])))


def _saved_s(found: Forecast, *names: str) -> float:
    """Seconds of communication that the step would be spared without these of ``Exchange``."""
    whole = combine(found.work, found.sent, found.layouts, found.rates).communicate
    nothing: dict[str, Any] = dict.fromkeys(names, np.zeros_like(found.step_s))
    without = combine(found.work, replace(found.sent, **nothing), found.layouts, found.rates)
    return float((whole - without.communicate)[0])


def step_without(found: Forecast, *counts: str) -> StepTable:
    """The step if there were nothing of these counts of ``Work``."""
    nothing: dict[str, Any] = dict.fromkeys(counts, np.zeros_like(found.step_s))
    return combine(replace(found.work, **nothing), found.sent, found.layouts, found.rates)


def bound_by(found: Forecast, seconds: Callable[[StepTable], Numbers]) -> Forecast:
    """The forecast without its head where that takes none of these ``seconds``.

    A rank that has the head and fewer blocks may be no slower than the others; then only their work counts.
    """
    whole = combine(found.work, found.sent, found.layouts, found.rates)
    headless = step_without(found, "head_s", "loss_s")
    if not np.array_equal(seconds(headless), seconds(whole)):
        return found
    zero = np.zeros_like(found.step_s)
    return replace(found, work=replace(found.work, head_s=zero, loss_s=zero))


def _real(shares: Iterable[Share], total_s: float) -> list[Share]:
    """Without what is not there."""
    return [share for share in shares if share.seconds > 1e-9 * total_s]


def _recomputed_share(scenario: Scenario, recompute: Recompute) -> float:
    """Operations that are really computed over those that the model needs."""
    whole = count_flops(scenario.model, sequences=1, sequence_tokens=scenario.workload.sequence_tokens)
    again = {"none": 0, "selective": whole.attention, "full": whole.linear + whole.attention}[recompute]
    return 1 + again / whole.training


def _needs(scenario: Scenario, choice: Choice, run: RunCost) -> Needs:
    node = scenario.cluster.node
    writers = max(1.0, float(run.checkpoint_write_bytes_per_s[0]) / (node.disk_bytes_per_s or 1.0))
    offloaded = float(choice.found.memory.host_bytes[0])
    # What lives there anyway, or on the node's drives, is not copied once more for a checkpoint.
    staged = max(0.0, run.checkpoint_bytes / writers - offloaded - float(choice.found.memory.nvme_bytes[0]))
    return Needs(
        host_memory_bytes=offloaded + staged + node.devices * RANK_HOST_BYTES,
        host_memory_available_bytes=node.host_memory_bytes,
        checkpoint_bytes=run.checkpoint_bytes,
        checkpoint_write_s=float(run.checkpoint_s[0]),
        checkpoint_write_bytes_per_s=float(run.checkpoint_write_bytes_per_s[0]),
        checkpoint_interval_s=float(run.parts.checkpoint_interval_s[0]),
        loader_bytes_per_s=float(run.loader_bytes_per_s[0]),
        disk_bytes=run.disk_bytes,
        device_hours=float(run.device_hours[0]),
        interruptions=float(run.parts.interruptions[0]),
        power_w=None if run.power_w is None else float(run.power_w[0]),
        kwh=None if run.kwh is None else float(run.kwh[0]),
        nvme_bytes=float(choice.found.memory.nvme_bytes[0]),
        nvme_available_bytes=node.nvme_bytes,
    )


def _interval(low: np.ndarray | None, mid: np.ndarray | None, high: np.ndarray | None) -> Interval | None:
    if low is None or mid is None or high is None:
        return None
    return Interval(low=float(low[0]), mid=float(mid[0]), high=float(high[0]))
