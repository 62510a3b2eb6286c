"""Plans a run on a cluster and prints it: verdict, memory, phases, needs, other layouts, and what it rests on."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.cli.pictures import drawable
from trainwright.cli.plan_question import OF_SERVING, question_of, refuse
from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from trainwright.planner.cluster_plan import Planned
    from trainwright.planner.explanation import Explanation, Term
    from trainwright.planner.question import Question
    from trainwright.spec.plan import Assumption, Needs, Plan


def run(args: argparse.Namespace) -> int:
    """Plan, and print the plan, an explanation, or a sweep."""
    refuse(args, OF_SERVING, what="this is about serving", fix="add --inference, or say --batch, --sequence")
    question = question_of(args)
    if args.sweep is not None:
        from trainwright.cli.plan_sweep import run as run_sweep

        refuse(args, ("explain",), what="a sweep is many plans", fix="explain one of them")
        return run_sweep(args, question)
    from trainwright.planner.cluster_plan import planned, ways_to_fit
    from trainwright.planner.question import resolve

    output = Output.of(args)
    if args.draw is not None:
        drawable(Path(args.draw))
    found = planned(resolve(question))
    if args.explain is not None:
        from trainwright.planner.explain import explain

        explained = explain(found, args.explain)
        output.result({"explanation": explained}, lambda: show_explanation(explained, output))
        return 0
    plan = found.plan
    if not plan.estimate.fits:
        plan = replace(plan, rejected=ways_to_fit(found))
    output.result({"plan": plan}, lambda: show(plan, found, question, output))
    if args.draw is not None:
        for path in draw(plan, found, Path(args.draw)):
            output.note(f"drawn: {path}")
    return 0 if plan.estimate.fits else 1


def verdict(plan: Plan) -> str:
    """One line: ``fits: 61.2 GiB of 78.8 GiB; 11.4 days, $273k``."""
    found = plan.estimate
    memory = f"{format_bytes(found.memory.total_bytes)} of {format_bytes(found.memory_available_bytes)}"
    if found.fit == "does not fit":
        way = f"smallest change: {plan.rejected[0].name}" if plan.rejected else "no change of the run would help"
        needs, host = found.needs, None if found.needs is None else found.needs.host_memory_available_bytes
        if needs is not None and found.memory.total_bytes <= found.memory_available_bytes:
            if needs.nvme_bytes > (needs.nvme_available_bytes or 0):
                memory = f"{format_bytes(needs.nvme_bytes)} of {format_bytes(needs.nvme_available_bytes or 0)} of NVMe"
            elif host is not None:
                memory = f"{format_bytes(needs.host_memory_bytes)} of {format_bytes(host)} of a host's memory"
        return f"does not fit: needs {memory}; {way}"
    cost = "price unknown" if found.usd is None else format_usd(found.usd.mid)
    sure = "fits" if found.fit == "fits" else "uncertain, too near to the limit to say"
    return f"{sure}: {memory}; {format_seconds(found.seconds.mid)}, {cost}"


def show(plan: Plan, found: Planned, question: Question, output: Output) -> None:
    """The plan as text."""
    from trainwright.planner.choose import mesh

    estimate, work, machines = plan.estimate, plan.workload, plan.cluster
    output.heading(verdict(plan))
    name = question.model_name or plan.model.family
    devices = f"{machines.devices:,} {machines.device.name}" if machines.devices > 1 else machines.device.name
    parameters = format_count(sum(plan.parameters.values()))
    images = work.sequence_tokens == 1
    unit, length = ("images", "") if images else ("tokens", f", sequences of {work.sequence_tokens:,}")
    output.line(
        f"{name}: {parameters} parameters, {format_count(work.total_tokens)} {unit} in {work.steps:,} steps of "
        f"{format_count(work.batch_tokens)} on {devices}; {work.precision}{length}"
    )
    chosen = "as asked" if question.layout else "chosen"
    output.line(f"layout ({chosen}): {mesh(plan.parallel, work.recompute)}")
    if estimate.fits:
        _show_speed(plan, output)
    else:
        output.line(f"with memory enough: {format_seconds(estimate.seconds.mid)} at an MFU of {estimate.mfu:.1%}")
    output.line()
    _show_memory(plan, found, output)
    if estimate.fits:
        output.line()
        _show_time(plan, found, output)
    if estimate.fits and estimate.needs is not None:
        output.line()
        output.table(("it also needs", "amount", "note"), needs_rows(estimate.needs, images=images))
    if plan.rejected:
        output.line()
        title = ("would make it fit", "at") if estimate.fit == "does not fit" else ("not chosen", "because")
        output.table(title, [(other.name, other.reason) for other in plan.rejected])
    output.line()
    output.table(
        ("rests on", "value", "origin", "source"),
        [assumption_row(entry, whole=output.verbose) for entry in estimate.assumptions],
    )


def _show_speed(plan: Plan, output: Output) -> None:
    found, devices = plan.estimate, plan.cluster.devices
    unit = "images" if plan.workload.sequence_tokens == 1 else "tokens"
    hfu = "" if found.hfu is None or found.hfu == found.mfu else f", HFU {found.hfu:.1%}"
    each = "" if devices == 1 else f", {format_rate(found.tokens_per_s / devices)} a device"
    output.line(
        f"{format_rate(found.tokens_per_s)} {unit}/s{each}; MFU {found.mfu:.1%}{hfu}; mostly {found.bottleneck}"
    )
    low, high = format_seconds(found.seconds.low), format_seconds(found.seconds.high)
    cost = "" if found.usd is None else f", {format_usd(found.usd.low)} and {format_usd(found.usd.high)}"
    output.line(f"9 of 10 such runs take between {low} and {high}{cost}")


def _show_memory(plan: Plan, found: Planned, output: Output) -> None:
    from trainwright.planner.predict.moments import MOMENTS

    table, estimate = found.choice.found.memory, plan.estimate
    stage = f" on the {'last' if table.last_stage[0] else 'first'} stage" if plan.parallel.pp > 1 else ""
    moments = {"end": "at the end of the backward pass", "backward": "in the backward pass", "loss": "at the loss",
               "update": "in the update", "load": "while loading"}  # fmt: skip
    rows = [
        (name.replace("_", " "), format_bytes(size)) for name, size in estimate.memory.as_dict().items() if size > 0
    ]
    rows.append(("total", format_bytes(estimate.memory.total_bytes)))
    output.table((f"memory of a device, {moments[MOMENTS[int(table.moment[0])]]}{stage}", "size"), rows)
    if estimate.memory_interval is not None:
        low, high = estimate.memory_interval.low, estimate.memory_interval.high
        output.line(f"8 of 10 measurements lie between {format_bytes(low)} and {format_bytes(high)}")


def _show_time(plan: Plan, found: Planned, output: Output) -> None:
    from trainwright.planner.explain_run import beside_steps

    estimate = plan.estimate
    steps, whole = estimate.phases.as_dict(), estimate.run_phases.as_dict()
    total = estimate.phases.total_s
    rows = [
        (name, format_seconds(steps[name]) if steps[name] > 1e-6 * total else "", format_seconds(whole[name]))
        for name in whole
        if whole[name] > 0
    ]
    rows.append(("total", format_seconds(total), format_seconds(estimate.run_phases.total_s)))
    output.table(("time", "a step", "the run"), rows)
    least = 1e-3 * estimate.run_phases.total_s
    beside = [f"{format_seconds(seconds)} {name}" for name, seconds in beside_steps(found.run) if seconds >= least]
    if beside:
        output.line(f"other, beside the steps: {'; '.join(beside)}")
    if estimate.exposed:
        output.line()
        shown = [part for part in estimate.exposed if part.seconds >= 0.0005 * total]
        output.table(
            ("communication that nothing hides", "a step", "share"),
            [(part.name, format_seconds(part.seconds), f"{part.seconds / total:.1%}") for part in shown],
        )


def needs_rows(needs: Needs, *, images: bool = False) -> list[tuple[str, str, str]]:
    """What the run needs beside its devices."""
    host = needs.host_memory_available_bytes
    little = "" if host is None or needs.host_memory_bytes <= host else ": too little"
    rate = f"{format_bytes(needs.checkpoint_write_bytes_per_s)}/s"
    every = format_seconds(needs.checkpoint_interval_s)
    written = f"written in {format_seconds(needs.checkpoint_write_s)} at {rate}, best every {every}"
    rows = [
        ("host memory of a node", format_bytes(needs.host_memory_bytes),
         "" if host is None else f"of {format_bytes(host)}{little}"),
        *_nvme_rows(needs),
        ("a checkpoint", format_bytes(needs.checkpoint_bytes), written),
        ("disk", format_bytes(needs.disk_bytes), "two checkpoints" + ("" if images else ", and each token once")),
        ("loader", f"{format_bytes(needs.loader_bytes_per_s)}/s", "for all devices together"),
        ("device hours", number(needs.device_hours), f"interruptions to expect: {expected(needs.interruptions)}"),
    ]  # fmt: skip
    if needs.kwh is not None and needs.power_w is not None:
        power = f"building included; heat to carry away: {number(needs.power_w / 1e3)} kW"
        rows.append(("energy", f"{number(needs.kwh)} kWh", power))
    return rows


def _nvme_rows(needs: Needs) -> list[tuple[str, str, str]]:
    if not needs.nvme_bytes:
        return []
    there = needs.nvme_available_bytes or 0
    much = "" if needs.nvme_bytes <= there else ": too little"
    return [("NVMe of a node", format_bytes(needs.nvme_bytes), f"of {format_bytes(there)}{much}; what is offloaded")]


def number(value: float) -> str:
    """Four digits of it, and no exponent where people write none."""
    if abs(value) >= 1e6:
        return format_count(value)
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:,.4g}"


def expected(count: float) -> str:
    """How often something is to be expected; what is nearly never says so."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}" if count >= 0.01 else "hardly any"


def format_rate(per_s: float) -> str:
    """Tokens per second: whole ones from ten on."""
    return number(per_s) if per_s >= 1e6 else f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def assumption_row(entry: Assumption, *, whole: bool = False) -> tuple[str, str, str, str]:
    """An assumption's row; a long source is cut unless all of it is wanted."""
    value = entry.value if isinstance(entry.value, str) else number(entry.value)
    if entry.unit == "s" and not isinstance(entry.value, str) and entry.value < 1:
        return entry.name, format_seconds(entry.value), entry.origin, entry.source
    source = entry.source if whole or len(entry.source) <= 90 else entry.source[:87].rstrip() + "..."
    return entry.name, f"{value} {entry.unit}".strip(), entry.origin, source


def show_explanation(found: Explanation, output: Output) -> None:
    """The formula, its numbers, and what it comes to."""
    output.heading(f"{found.name} = {amount(found.value, found.unit)}: {found.about}")
    output.line(f"= {found.formula}")
    output.line(f"= {found.with_numbers(amount)}")
    output.line()
    output.table(("", "value", "is"), [_term(term) for term in found.terms])
    if found.details:
        output.line()
        output.table(("", "value", "is"), [_term(term) for term in found.details])
    if found.source:
        output.line(f"source: {found.source}")


def _term(term: Term) -> tuple[str, str, str]:
    return term.symbol, amount(term.value, term.unit), term.meaning


def amount(value: float, unit: str) -> str:
    """A number with its unit as people write it."""
    if unit == "bytes":
        return f"{value:,.4g} bytes" if value < 1024 else format_bytes(value)
    if unit == "s":
        return format_seconds(value) if value >= 1e-6 or not value else "under 1 µs"
    if unit == "$":
        return format_usd(value) if value >= 100 else f"${value:,.2f}"
    return f"{number(value)} {unit}".strip()


def draw(plan: Plan, found: Planned, path: Path) -> tuple[Path, Path]:
    """Two pictures: memory by class, and the phases of a step."""
    from trainwright.cli import pictures
    from trainwright.planner.choose import mesh

    name = mesh(plan.parallel, plan.workload.recompute)
    memory, step = path, path.with_stem(f"{path.stem}-step")
    estimate = plan.estimate
    bar = pictures.MemoryBar(
        name=name, parts=estimate.memory.as_dict(), available_bytes=estimate.memory_available_bytes
    )
    pictures.memory_bars([bar], memory, title=verdict(plan))
    table = found.choice.found.step
    parts = {
        "forward": table.forward, "backward": table.backward, "communicate": table.communicate, "update": table.update,
        "host": table.host, "idle": table.idle,
    }  # fmt: skip
    shown = {phase: float(seconds[0]) for phase, seconds in parts.items()}
    pictures.step_bars([pictures.StepBar(name=name, parts=shown)], step)
    return memory, step
