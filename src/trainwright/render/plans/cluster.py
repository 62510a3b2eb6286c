"""A plan for a cluster: verdict, memory, phases, needs, other layouts, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_factor, format_seconds
from trainwright.hardware.catalogue.energy import YEARS
from trainwright.planner.cost.assumptions import rented
from trainwright.planner.explain.run import beside_steps
from trainwright.planner.forecast.memory.moments import MOMENTS
from trainwright.planner.forecast.memory.stages import place_name
from trainwright.planner.plan.layout import mesh, otherwise
from trainwright.planner.plan.usual import habits
from trainwright.render.numbers import energy, expected, format_rate, number, share, steps_of
from trainwright.render.page import Page
from trainwright.render.plans.assumptions import LONG, assumption_row, lengths_assumed, shortened
from trainwright.render.plans.first_screen import memory_bar, show_first
from trainwright.spec.workload import ParallelPlan

if TYPE_CHECKING:
    from trainwright.planner.cost.batches import CriticalBatch
    from trainwright.planner.cost.keeping import Keeping
    from trainwright.planner.plan.cluster import AtRate, Planned
    from trainwright.planner.plan.question import Question
    from trainwright.spec.device import Price
    from trainwright.spec.plan import Needs, Plan


def verdict(plan: Plan) -> str:
    """Returns one line: ``fits: 61.2 GiB of 78.8 GiB; 11.4 days, $273k``.

    *Fits* has to be dependable: it asks for two deviations of room, more than the printed range has on either side.
    Where the memory lies between that range's end, which one peak in ten is above, and those two deviations, it is
    neither too near to say nor sure.
    """
    estimate = plan.estimate
    memory = f"{format_bytes(estimate.memory.total_bytes)} of {format_bytes(estimate.memory_available_bytes)}"
    if estimate.fit == "does not fit":
        way = f"smallest change: {plan.rejected[0].name}" if plan.rejected else "no change of the run would help"
        needs, host = estimate.needs, None if estimate.needs is None else estimate.needs.host_memory_available_bytes
        if needs is not None and estimate.memory.total_bytes <= estimate.memory_available_bytes:
            if needs.nvme_bytes > (needs.nvme_available_bytes or 0):
                memory = f"{format_bytes(needs.nvme_bytes)} of {format_bytes(needs.nvme_available_bytes or 0)} of NVMe"
            elif host is not None:
                memory = f"{format_bytes(needs.host_memory_bytes)} of {format_bytes(host)} of a host's memory"
        return f"does not fit: needs {memory}; {way}"
    cost = "price unknown" if estimate.usd is None else format_usd(estimate.usd.mid)
    sure = "fits"
    if estimate.fit == "uncertain":
        interval = estimate.memory_interval
        within = interval is not None and interval.high <= estimate.memory_available_bytes
        sure = "probably fits (9 in 10)" if within else "uncertain, too near to the limit to say"
    return f"{sure}: {memory}; {format_seconds(estimate.seconds.mid)}, {cost}"


def _show_verdict(plan: Plan, page: Page) -> None:
    """Shows the verdict, and why no price is known where it has none."""
    page.heading(verdict(plan))
    if plan.estimate.fits and plan.estimate.usd is None:
        why = next(each.source for each in plan.estimate.assumptions if each.key == "price")
        page.line(f"price unknown: {why}")


def show(
    plan: Plan,
    planned: Planned,
    question: Question,
    page: Page,
    *,
    following: str = "",
    offered: str = "",
    asked_by: Sequence[str] = (),
) -> None:
    """Shows the plan as text: the first screen, with every table where all is wanted.

    ``following`` is the command to type next, ``offered`` what makes an uncertain plan sure, or a sure one faster,
    ``asked_by`` the options that ask for each of the plan's changes.
    """
    estimate, work = plan.estimate, plan.workload
    _show_verdict(plan, page)
    page.line(_what(plan, question))
    if planned.critical is not None and planned.critical.is_far_below(work.step_tokens):
        page.line(_beyond(planned.critical, plan))
    page.line(f"layout (chosen{_asked(question)}): {mesh(plan.parallel, work.recompute)}")
    if by_default := habits(estimate.assumptions, planned.scenario.run.stack):
        page.line(by_default)
    if plan.cluster.nodes > 1:
        page.line(_network(plan))
    if estimate.fits:
        _show_speed(plan, page)
        page.line(_beside_steps(plan, planned))
        if planned.keeping is not None:
            page.line(_beside(planned.keeping))
    else:
        page.line(_with_room(plan, plan.roomy or plan))
    if planned.outlives_machines:
        page.line(f"not practical: it outlives its machines, which are written off in {YEARS:g} years")
    if planned.scenario.price is not None:
        _show_price(planned.scenario.price, page)
    if planned.at_rate is not None:
        page.line(_at_rate(planned.at_rate))
    page.line(f"memory {memory_bar(plan)}")
    if offered:
        page.line(offered)
    if page.verbose:
        _show_tables(plan, planned, page)
    _show_others(plan, page, asked_by)
    show_first(page, plan, following=following)


def _show_others(plan: Plan, page: Page, asked_by: Sequence[str]) -> None:
    """Shows what would make a plan fit with the options that ask for it; of one that fits what was not chosen."""
    others = [(other.name, other.reason) for other in plan.rejected]
    if not others or not (page.verbose or plan.estimate.fit == "does not fit"):
        return
    page.line()
    if plan.estimate.fit != "does not fit":
        page.table(("not chosen", "because"), others)
    elif not any(asked_by):
        page.table(("would make it fit", "at"), others)
    else:
        rows = [(*other, asked) for other, asked in zip(others, asked_by, strict=True)]
        page.table(("would make it fit", "at", "asked by"), rows)


def _with_room(plan: Plan, roomy: Plan) -> str:
    """Returns the line about a run that does not fit, were there memory for it: as it would be divided then."""
    seconds, used = format_seconds(roomy.estimate.seconds.mid), share(roomy.estimate.mfu)
    divided = otherwise(plan.parallel, roomy.parallel, named="")
    return f"with memory enough: {seconds} at an MFU of {used}{divided and f', {divided}'}"


def _show_price(price: Price, page: Page) -> None:
    """Shows what a price alone does not say: that it is doubtful, or pays for devices that the run leaves idle."""
    if price.source == "given" and price.doubt:
        page.line(f"a doubtful price: {price.doubt}; a price is of one device and hour")
    if price.idle_devices:
        page.line(f"rented whole at {price.provider}: {rented(price)}")


def _what(plan: Plan, question: Question) -> str:
    """Returns the line that says what is trained on what."""
    work, machines = plan.workload, plan.cluster
    name = question.model_name or plan.model.family
    devices = f"{machines.devices:,} {machines.device.name}" if machines.devices > 1 else machines.device.name
    parameters, unit = format_count(sum(plan.parameters.values())), plan.model.unit
    one, counted = plan.model.batch_unit_tokens, plan.model.batch_unit
    length = "" if unit == "images" else f", sequences of {work.sequence_tokens:,}"
    if counted != unit:
        length = f", {counted} of {one:,} tokens"
    if work.example_tokens is not None:
        assumed = lengths_assumed(plan.estimate.assumptions)
        length = f", examples of {work.example_tokens:,} in the mean{assumed}, padded, at most {work.sequence_tokens:,}"
    trained, batch = format_count(work.total_tokens / one), format_count(work.step_tokens / one)
    most = "up to " if work.ramp else ""
    return (
        f"{name}: {parameters} parameters, {trained} {counted} in {steps_of(work.steps)} {most}{batch} on {devices}; "
        f"{work.precision}{length}"
    )


def _beyond(critical: CriticalBatch, plan: Plan) -> str:
    """Returns the line about a batch that trains far less for each token than smaller ones."""
    model, step_tokens = plan.model, plan.workload.step_tokens
    batch, most = (format_count(each / model.batch_unit_tokens) for each in (step_tokens, critical.tokens))
    price = format_factor(float(critical.price(step_tokens)))
    return (
        f"a batch of {batch} {model.batch_unit} is far beyond the critical one of {most}: what small batches "
        f"reach takes {price} times as many ({critical.source})"
    )


def _network(plan: Plan) -> str:
    """Returns the line that says what joins the machines: of a cloud's ones who states it, else by the catalogue.

    Where the fastest link goes beyond a machine to all of them that is the one.
    """
    entries = {entry.key: entry for entry in plan.estimate.assumptions}
    entry = next(entries[key] for key in ("network", "scale_out", "scale_up") if key in entries)
    name, value, origin, source = assumption_row(entry)
    return f"{name}: {value} ({origin}: {shortened(source, most=LONG)})"


def _beside_steps(plan: Plan, planned: Planned) -> str:
    """Returns the line that parts a run into its steps and what it takes beside them; its energy."""
    least = 1e-3 * plan.estimate.run_phases.total_s
    alone = format_seconds(float(planned.run.parts.steps_s[0]))
    beside = [f"{format_seconds(seconds)} {name}" for name, seconds in beside_steps(planned.run) if seconds >= least]
    kwh = None if plan.estimate.needs is None else plan.estimate.needs.kwh
    parts = " + ".join((f"steps alone {alone}", *beside))
    return parts if kwh is None else f"{parts}; {energy(kwh)}"


def _beside(keeping: Keeping) -> str:
    """Returns the line that says what storage and egress cost beside the rental, or that it is not known."""
    kept = keeping.kept
    sizes = {"storage": f"{format_bytes(kept.kept_bytes)} kept", "egress": f"{format_bytes(kept.out_bytes)} out"}
    costs = {name: "unknown" if usd is None else format_usd(usd) for name, usd in keeping.costs}
    beside = ", ".join(f"{name} {cost} ({sizes[name]})" for name, cost in costs.items())
    where = f" at {keeping.provider}" if keeping.provider else ""
    if set(costs.values()) == {"unknown"}:
        both = " and ".join(f"{name} ({sizes[name]})" for name in costs)
        return f"beside the rental{where}: {both}, whose prices are unknown"
    if keeping.total_usd is None:
        return f"beside the rental{where}: {beside}"
    left = f", without {' and '.join(keeping.without)}" if keeping.without else ""
    return f"beside the rental{where}: {beside}; {format_usd(keeping.total_usd)} in all{left}"


def _at_rate(at: AtRate) -> str:
    speed = f"{number(at.flops_per_s / 1e12)} TFLOP/s"
    text = f"at {speed} a device, if it held them: {format_seconds(at.seconds)}; 6 x parameters x tokens, nothing else"
    if at.peak_flops_per_s is None or at.flops_per_s <= at.peak_flops_per_s:
        return text
    return f"{text}; it cannot hold them: beyond its peak of {number(at.peak_flops_per_s / 1e12)} TFLOP/s"


def _show_tables(plan: Plan, planned: Planned, page: Page) -> None:
    """Shows memory by class, time by phase, and what the run needs beside its devices."""
    page.line()
    _show_memory(plan, planned, page)
    if not plan.estimate.fits:
        return
    page.line()
    _show_time(plan, planned, page)
    if plan.estimate.needs is not None:
        page.line()
        images = plan.model.unit == "images"
        page.table(("it also needs", "amount", "note"), needs_rows(plan.estimate.needs, images=images))


def _show_speed(plan: Plan, page: Page) -> None:
    estimate, devices = plan.estimate, plan.cluster.devices
    hfu = "" if estimate.hfu is None or estimate.hfu == estimate.mfu else f", HFU {estimate.hfu:.1%}"
    model, tokens_per_s = plan.model, estimate.tokens_per_s
    rate = tokens_per_s / model.batch_unit_tokens
    tokens = "" if model.unit == model.batch_unit else f" ({format_rate(tokens_per_s)} {model.unit}/s)"
    each = "" if devices == 1 else f", {format_rate(rate / devices)} a device"
    mfu = f"MFU {share(estimate.mfu)}{hfu}"
    page.line(f"{format_rate(rate)} {model.batch_unit}/s{tokens}{each}; {mfu}; mostly {estimate.bottleneck}")
    low, high = format_seconds(estimate.seconds.low), format_seconds(estimate.seconds.high)
    cost = "" if estimate.usd is None else f", {format_usd(estimate.usd.low)} and {format_usd(estimate.usd.high)}"
    page.line(f"9 of 10 such runs take between {low} and {high}{cost}")


def _asked(question: Question) -> str:
    """Returns what of the layout was asked for, in words; of a recipe, which fixes all of it, what divides the run."""
    parts = dict(question.layout)
    if question.workload is not None:
        usual = ParallelPlan()
        parts = {name: value for name, value in parts.items() if value != getattr(usual, name, None)}
    words = ", ".join(f"{name}={value}" for name, value in parts.items())
    return f"; asked: {words}" if words else ""


def _show_memory(plan: Plan, planned: Planned, page: Page) -> None:
    table, estimate = planned.choice.forecast.memory, plan.estimate
    stage = f" on {place_name(plan.parallel, int(table.last_stage[0]))}" if plan.parallel.pp > 1 else ""
    moments = {
        "end": "at the end of the backward pass",
        "backward": "in the backward pass",
        "loss": "at the loss",
        "update": "in the update",
        "load": "while loading",
    }
    rows = [
        (name.replace("_", " "), format_bytes(size)) for name, size in estimate.memory.as_dict().items() if size > 0
    ]
    rows.append(("total", format_bytes(estimate.memory.total_bytes)))
    page.table((f"memory of a device, {moments[MOMENTS[int(table.moment[0])]]}{stage}", "size"), rows)
    if estimate.memory_interval is not None:
        low, high = estimate.memory_interval.low, estimate.memory_interval.high
        page.line(f"8 of 10 measurements lie between {format_bytes(low)} and {format_bytes(high)}")


def _show_time(plan: Plan, planned: Planned, page: Page) -> None:
    estimate = plan.estimate
    steps, whole = estimate.phases.as_dict(), estimate.run_phases.as_dict()
    total = estimate.phases.total_s
    rows = [
        (name, format_seconds(steps[name]) if steps[name] > 1e-6 * total else "", format_seconds(whole[name]))
        for name in whole
        if whole[name] > 0
    ]
    rows.append(("total", format_seconds(total), format_seconds(estimate.run_phases.total_s)))
    page.table(("time", "a step", "the run"), rows)
    idle_s = float(planned.choice.forecast.step.idle[0])
    if idle_s > 0:
        page.line(f"of communicate {format_seconds(idle_s)} a step ({idle_s / total:.1%}) are the pipeline's bubble")
    if estimate.exposed:
        page.line()
        shown = [part for part in estimate.exposed if part.seconds >= 0.0005 * total]
        page.table(
            ("communication that nothing hides", "a step", "share"),
            [(part.name, format_seconds(part.seconds), f"{part.seconds / total:.1%}") for part in shown],
        )


def needs_rows(needs: Needs, *, images: bool = False) -> list[tuple[str, str, str]]:
    """Returns rows of what the run needs beside its devices."""
    host = needs.host_memory_available_bytes
    little = "" if host is None or needs.host_memory_bytes <= host else ": too little"
    rate = f"{format_bytes(needs.checkpoint_write_bytes_per_s)}/s"
    every = format_seconds(needs.checkpoint_interval_s)
    written = f"written in {format_seconds(needs.checkpoint_write_s)} at {rate}, best every {every}"
    rows = [
        (
            "host memory of a node",
            format_bytes(needs.host_memory_bytes),
            "" if host is None else f"of {format_bytes(host)}{little}",
        ),
        *_nvme_rows(needs),
        ("a checkpoint", format_bytes(needs.checkpoint_bytes), written),
        ("disk", format_bytes(needs.disk_bytes), "two checkpoints" + ("" if images else ", and each token once")),
        ("loader", f"{format_bytes(needs.loader_bytes_per_s)}/s", "for all devices together"),
        ("device hours", number(needs.device_hours), f"interruptions to expect: {expected(needs.interruptions)}"),
    ]
    if needs.kwh is not None and needs.power_w is not None:
        power = f"building included; heat to carry away: {number(needs.power_w / 1e3)} kW"
        rows.append(("energy", energy(needs.kwh), power))
    return rows


def _nvme_rows(needs: Needs) -> list[tuple[str, str, str]]:
    if not needs.nvme_bytes:
        return []
    there = needs.nvme_available_bytes or 0
    much = "" if needs.nvme_bytes <= there else ": too little"
    return [("NVMe of a node", format_bytes(needs.nvme_bytes), f"of {format_bytes(there)}{much}; what is offloaded")]
