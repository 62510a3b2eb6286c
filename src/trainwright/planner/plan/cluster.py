"""A whole plan of a run on a cluster: verdict, memory, phases, time, money, and all that it rests on."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.core.units import YEAR_S
from trainwright.hardware.catalogue.energy import YEARS
from trainwright.hardware.catalogue.support import lacking_axes
from trainwright.planner.cost.batches import CriticalBatch, critical_batch
from trainwright.planner.cost.keeping import Keeping, keeping, kept_of
from trainwright.planner.cost.run_cost import RunCost, run_cost
from trainwright.planner.cost.scaling_laws import held_rate_s
from trainwright.planner.counts.flops import again_flops, count_flops, utilisation
from trainwright.planner.counts.lengths import padded_lengths
from trainwright.planner.counts.parameters import active_parameters, parameter_counts
from trainwright.planner.forecast.forecast import Forecast, corrected, model_flops_per_token
from trainwright.planner.forecast.played import played
from trainwright.planner.forecast.shares import exposed, work_shares
from trainwright.planner.plan.assumptions import RANK_HOST_BYTES, assumed
from trainwright.planner.plan.layout import Choice, choose
from trainwright.planner.plan.scenario import Scenario
from trainwright.planner.rates.learnt import Correction, correction
from trainwright.planner.search.changes import Change
from trainwright.spec.device import Price
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.model import ModelSpec
from trainwright.spec.plan import Assumption, Estimate, Fit, Interval, Needs, Plan
from trainwright.spec.run import PlacedRun
from trainwright.spec.workload import Workload

DOUBTED = 2.0
"""A measured run that is so many times faster or slower than predicted is doubtful: the plan says so."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Planned:
    """A plan with what it was computed from, for explanations."""

    plan: Plan
    scenario: Scenario
    choice: Choice
    run: RunCost
    changes: tuple[Change, ...] = ()
    """What would make it fit, in the plan's order; where that is uncertain the one that makes it sure, where it is sure
    the one that makes it much faster; only looked for where that is asked (``ways.with_ways``)."""
    at_rate: AtRate | None = None
    keeping: Keeping | None = None
    """Storage and egress, where devices are rented at a price."""

    @property
    def critical(self) -> CriticalBatch | None:
        """Returns the critical batch of a training from the start; None where a model is tuned, or fills gaps.

        Of an encoder's tokens few have a loss: what was measured on decoders says nothing about its batches.
        """
        model, work = self.plan.model, self.plan.workload
        fills_gaps = isinstance(model, ModelSpec) and model.kind == "encoder"
        return None if self.scenario.tunes or fills_gaps else critical_batch(model, work.total_tokens)

    @property
    def outlives_machines(self) -> bool:
        """Returns whether the run takes longer than machines are written off in: nobody trains so."""
        return (self.plan.roomy or self.plan).estimate.seconds.mid > YEARS * YEAR_S


@dataclass(frozen=True, kw_only=True, slots=True)
class AtRate:
    """How long a run would take if each device held a rate that is given, by 6 N D and nothing else."""

    flops_per_s: float
    seconds: float
    peak_flops_per_s: float | None = None
    """Of the device in the run's precision, which no software goes beyond."""


def plan_run(scenario: Scenario) -> Plan:
    """Returns the plan of a scenario; see ``planned``."""
    return planned(scenario).plan


def planned(scenario: Scenario, choice: Choice | None = None) -> Planned:
    """Returns the plan of a scenario, and the forecast that it comes from.

    Args:
        scenario: what is asked about.
        choice: its layout; None: the scenario's, where it fixes one, else the best of all.

    Raises:
        RecipeError: a layout that cannot run, a device without a rate for the precision, a link that is not known.
    """
    choice = choice or choose(scenario)
    asked = replace(scenario.run, workload=replace(scenario.run.workload, recompute=choice.recompute))
    choice, piped = _played(choice)
    placed = PlacedRun(run=asked, parallel=choice.parallel)
    learnt = correction(placed, scenario.references, scenario.priors)
    if learnt != Correction():
        choice = replace(choice, forecast=corrected(choice.forecast, **asdict(learnt)))
    run = run_cost(
        choice.forecast,
        asked,
        total_tokens=asked.workload.total_tokens,
        usd_per_device_hour=None if scenario.price is None else scenario.price.usd_per_device_hour,
        settings=scenario.settings,
        numbers=scenario.numbers,
    )
    estimate = _estimate(scenario, asked.workload, choice, run)
    measured = [_measured_runs(scenario, learnt)] if scenario.references or scenario.left_out else []
    notes = (*_divided(scenario, choice), *piped, *measured)
    estimate = replace(estimate, assumptions=(*estimate.assumptions, *notes))
    plan = Plan(
        model=asked.model,
        parameters=parameter_counts(asked.model),
        workload=asked.workload,
        cluster=asked.cluster,
        parallel=choice.parallel,
        estimate=estimate,
        rejected=choice.rejected,
        unmeasured=scenario.unmeasured,
    )
    kept = None if scenario.price is None or scenario.on_this_machine else _keeping(scenario, scenario.price, run)
    return Planned(plan=plan, scenario=scenario, choice=choice, run=run, at_rate=_at_rate(scenario), keeping=kept)


def _keeping(scenario: Scenario, price: Price, run: RunCost) -> Keeping:
    kept = kept_of(scenario.run, data_bytes=scenario.data_bytes, passes=scenario.passes)
    return keeping(kept, price, float(run.seconds[0]), None if run.usd is None else float(run.usd[0]))


def _at_rate(scenario: Scenario) -> AtRate | None:
    if scenario.flops_per_s is None:
        return None
    run, rate = scenario.run, scenario.flops_per_s
    parameters, tokens, devices = active_parameters(run.model), run.workload.total_tokens, run.cluster.devices
    seconds = float(held_rate_s(parameters, tokens, devices=devices, flops_per_s=rate))
    peak = run.cluster.device.flops_per_s.get(run.workload.precision)
    return AtRate(flops_per_s=rate, seconds=seconds, peak_flops_per_s=peak)


def _played(choice: Choice) -> tuple[Choice, tuple[Assumption, ...]]:
    """Returns the choice with its pipeline played out, and what that rests on; nothing changes where there is none."""
    forecast = choice.forecast
    out = played(forecast)
    if out is forecast:
        return choice, ()
    shares = [float(each.step.idle[0] / each.step_s[0]) for each in (out, forecast)]
    parallel, count = choice.parallel, forecast.layouts.micro_batches[0]
    schedule = f"{parallel.schedule} of {parallel.pp} stages and {count:,.0f} micro batches"
    source = f"{schedule}, played out; {shares[1]:.1%} in closed form, all stages equal"
    note = Assumption("pipeline", f"{shares[0]:.1%} idle", "", "default", source, key="pipeline")
    return replace(choice, forecast=out), (note,)


def _divided(scenario: Scenario, choice: Choice) -> tuple[Assumption, ...]:
    """Returns the axes of tuning that its software has not by itself and nobody asked for: nothing else fits."""
    if not scenario.tunes or not scenario.run.model.is_divisible:
        return ()
    axes = [axis for axis in lacking_axes(scenario.run) if axis not in scenario.layout]
    used = [f"{axis} {getattr(choice.parallel, axis)}" for axis in axes if getattr(choice.parallel, axis) > 1]
    if not used:
        return ()
    source = "few tune a model so; data parallelism, as most software tunes with, does not fit"
    return (Assumption("division of the model", ", ".join(used), "", "default", source, key="division"),)


def _measured_runs(scenario: Scenario, learnt: Correction) -> Assumption:
    known = scenario.references
    origin = scenario.references_from or f"{len(known)} given"
    note = f"speed x {learnt.speed:.3g}, memory x {learnt.memory:.3g}"
    why = f"{learnt.known:.0%} of the uncertainty explained"
    if not known:
        source = "; ".join(scenario.left_out)
        return Assumption("measured runs", "none like this", "", "ledger", source, key="measured_runs")
    if learnt == Correction():
        note = "nothing learnt"
        others = {f"{each.placed.run.cluster.device.name} with {each.placed.run.stack.name}" for each in known}
        asked = f"{scenario.run.cluster.device.name} with {scenario.run.stack.name}"
        why = f"of {', '.join(sorted(others))}, and not {asked}"
    doubtful = [each for each in known if each.log_speed is not None and abs(each.log_speed) > math.log(DOUBTED)]
    if doubtful and learnt != Correction():
        ratio = math.exp(doubtful[0].log_speed or 0.0)
        why += f"; one is {ratio:.3g} x as fast as predicted, believed in part (tokens of one device?)"
    source = "; ".join((origin, why, *scenario.left_out))
    return Assumption("measured runs", note, "", "ledger", source, key="measured_runs")


def _estimate(scenario: Scenario, workload: Workload, choice: Choice, run: RunCost) -> Estimate:
    forecast = choice.forecast
    shares = work_shares(forecast)
    largest = max(shares, key=lambda share: share.seconds)
    step_s = float(forecast.step_s[0])
    device, table = forecast.run.cluster.device, forecast.memory
    low, high = (each + table.resident_bytes(each, device) for each in table.interval("device"))
    # What is kept unused is given back before a run fails: it fills no more than the device.
    within = forecast.fits & (table.doubt(device) < 2)
    high = np.where(within, np.minimum(high, forecast.available_bytes), high)
    middle = table.device_bytes + table.resident_bytes(table.device_bytes, device)
    # A share of the peak, where that is not beaten.
    mfu = utilisation(float(run.mean.mfu[0]), 1.0)
    available = forecast.available_bytes
    ours = scenario.on_this_machine
    fit: Fit = verdict(forecast) if not ours else "fits" if forecast.fits[0] else "does not fit"
    return Estimate(
        fits=fit != "does not fit",
        fit=fit,
        memory=_memory(forecast, available),
        memory_available_bytes=available,
        memory_interval=_interval(low, middle, high),
        phases=_phases(run.mean),
        run_phases=_run_phases(scenario, run),
        tokens_per_s=float(run.mean.step_tokens[0] / run.mean.step_s[0]),
        mfu=mfu,
        hfu=None if mfu is None else mfu * _recomputed_share(scenario, choice),
        seconds=Interval(low=float(run.low_s[0]), mid=float(run.seconds[0]), high=float(run.high_s[0])),
        usd=_interval(run.usd_low, run.usd, run.usd_high),
        bottleneck=f"{largest.name} ({largest.seconds / step_s:.0%} of a step)",
        shares=shares,
        exposed=exposed(forecast),
        needs=None if ours else _needs(scenario, choice, run),
        assumptions=(*scenario.assumptions, *(() if ours else assumed(scenario, workload, choice, run))),
    )


def verdict(forecast: Forecast) -> Fit:
    """Returns the verdict on one layout's peak: below the device's memory, above, or too near to it to say.

    What is offloaded has to fit into the host's memory or onto its drives too.
    """
    if not forecast.memory.fits_host(forecast.run.cluster.node)[0]:
        return "does not fit"
    return "uncertain" if forecast.uncertain[0] else "fits" if forecast.fits[0] else "does not fit"


def _memory(forecast: Forecast, available_bytes: float) -> MemoryUse:
    """Returns the peak by class; beyond the device's memory, with as little unused as the allocator needs."""
    use, table = forecast.memory.use(0), forecast.memory
    resident = float(table.resident_bytes(table.device_bytes, forecast.run.cluster.device)[0])
    use = replace(use, optimizer=use.optimizer + resident)
    if use.total_bytes <= available_bytes:
        return use
    least = float(forecast.memory.needed_bytes[0]) - (use.total_bytes - use.reserved_unused)
    return replace(use, reserved_unused=min(use.reserved_unused, max(0.0, least)))


def _phases(forecast: Forecast) -> PhaseTimes:
    """Returns the phases as a run measures them: where a stage waits for another its clock says ``communicate``."""
    step = forecast.step
    return PhaseTimes(
        forward=float(step.forward[0]),
        backward=float(step.backward[0]),
        communicate=float(step.communicate[0] + step.idle[0]),
        update=float(step.update[0]),
        other=float(step.host[0]),
    )


def _run_phases(scenario: Scenario, run: RunCost) -> PhaseTimes:
    """Returns seconds of the whole run; a cluster's start is counted whole, compilation within."""
    steps, parts = _phases(run.mean).scaled(int(run.steps[0])), run.parts
    compile_s = scenario.numbers.start_s if scenario.on_this_machine and scenario.numbers is not None else 0.0
    lost = parts.lost_s + parts.recovery_s + parts.start_s - compile_s + parts.overhead_s
    return replace(
        steps,
        compile=compile_s,
        evaluate=float(parts.evaluation_s[0]),
        checkpoint=float(parts.checkpoints_s[0]),
        other=steps.other + float(lost[0]),
    )


def _recomputed_share(scenario: Scenario, choice: Choice) -> float:
    """Returns the operations that are really computed, padding's too and no waiting, over those that are needed."""
    whole = count_flops(scenario.run.model, sequences=1, sequence_tokens=scenario.run.workload.sequence_tokens)
    again = again_flops(scenario.run, choice.recompute, whole, compiled=choice.parallel.compile)
    work = scenario.run.workload
    if work.recompute_budget:
        again *= work.recomputed_share(scenario.run.transformer.blocks)
    padded = 1.0
    if work.example_tokens is not None:
        padded = float(padded_lengths(work, choice.forecast.layouts)[0][0]) / work.example_tokens
    length = replace(work, example_tokens=None)
    return padded * (1 + again / (model_flops_per_token(scenario.run.model, length) * work.sequence_tokens))


def _needs(scenario: Scenario, choice: Choice, run: RunCost) -> Needs:
    node = scenario.run.cluster.node
    writers = max(1.0, float(run.checkpoint_write_bytes_per_s[0]) / (node.disk_bytes_per_s or 1.0))
    offloaded = float(choice.forecast.memory.node_bytes(node)[0])
    # What lives there anyway, or on the node's drives, is not copied once more for a checkpoint.
    staged = max(0.0, run.checkpoint_bytes / writers - offloaded - float(choice.forecast.memory.nvme_bytes[0]))
    return Needs(
        host_memory_bytes=offloaded + staged + node.devices * RANK_HOST_BYTES,
        host_memory_available_bytes=node.host_memory_bytes,
        checkpoint_bytes=run.checkpoint_bytes,
        checkpoint_write_s=float(run.checkpoint_s[0]),
        checkpoint_write_bytes_per_s=float(run.checkpoint_write_bytes_per_s[0]),
        checkpoint_interval_s=float(run.parts.checkpoint_interval_s[0]),
        loader_bytes_per_s=float(run.loader_bytes_per_s[0]),
        disk_bytes=float(run.disk_bytes[0]),
        device_hours=float(run.device_hours[0]),
        interruptions=float(run.parts.interruptions[0]),
        power_w=None if run.power_w is None else float(run.power_w[0]),
        kwh=None if run.kwh is None else float(run.kwh[0]),
        nvme_bytes=float(choice.forecast.memory.nvme_bytes[0]),
        nvme_available_bytes=node.nvme_bytes,
    )


def _interval(low: np.ndarray | None, mid: np.ndarray | None, high: np.ndarray | None) -> Interval | None:
    if low is None or mid is None or high is None:
        return None
    return Interval(low=float(low[0]), mid=float(mid[0]), high=float(high[0]))
