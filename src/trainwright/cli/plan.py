"""Say whether a run fits, how long it takes and what it costs, before anything is started.

plan RECIPE is about this machine: it rests on what the doctor measured in the recipe's workspace, without that on facts
and stated defaults, and on finished runs here (--calibrate none: not on those). plan --model llama3-70b --tokens 15T
--on 64x8xh100-sxm is about any cluster, plan --compute 1e21 about the best model for a budget. Exit code 1: it does not
fit.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe, add_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.money import format_usd
from trainwright.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from trainwright.hardware.record import Machine
    from trainwright.spec.plan import Assumption, Plan, Rental
    from trainwright.spec.recipe import Recipe


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    from trainwright.cli.plan_question import add_question

    add_recipe(parser)
    add_workspace(parser)
    add_question(parser)
    answer = parser.add_argument_group("answers")
    answer.add_argument(
        "--explain", metavar="NAME", help="a formula with its numbers: memory.activations, time.forward"
    )
    answer.add_argument(
        "--sweep", metavar="NAME=VALUES", help="vary one thing: nodes=1,2,4,...,64, scale_out=100Gb/s,..."
    )
    answer.add_argument("--draw", metavar="FILE", help="a picture of the plan or the sweep: .svg or .png")
    budget = parser.add_argument_group("the best model for a budget")
    budget.add_argument("--compute", metavar="FLOPS", help="a budget of FLOPs: 1e21")
    budget.add_argument("--budget", metavar="USD", help="a budget of dollars: 10k$")
    budget.add_argument("--params", metavar="N", help="a model of so many parameters: 7B")
    serving = parser.add_argument_group("serving")
    serving.add_argument("--inference", action="store_true", help="plan generation in place of training")
    serving.add_argument("--batch-size", type=int, metavar="N", help="sequences at once (default: 1)")
    serving.add_argument("--context", metavar="N", help="tokens of a finished sequence (default: 2048)")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    for wanted, module in (
        (args.compute or args.budget or args.params, "trainwright.cli.plan_scaling"),
        (args.inference, "trainwright.cli.plan_inference"),
        (args.on or args.model, "trainwright.cli.plan_cluster"),
    ):
        if wanted:
            found: int = importlib.import_module(module).run(args)
            return found
    from trainwright.cli import plan_question as about

    every = (*about.OF_TRAINING, *about.OF_CLUSTERS, *about.OF_PLANS, *about.OF_SERVING)
    about.refuse(args, every, what="this is about a cluster", fix="say which: --on 8xh100-sxm")
    return _run_recipe(args)


def _run_recipe(args: argparse.Namespace) -> int:
    """The recipe on this machine."""
    # The planner brings pydantic, which --help must not wait for.
    from trainwright.cli.plan_question import ledger_of, note_broken
    from trainwright.core.registry import load

    output = Output.of(args)
    recipe = load_recipe(args).value
    root = workspace_of(args, name=recipe.name)
    machine, ledger = _machine(recipe, root), ledger_of(args, workspace=root)
    note_broken(ledger, output)
    plan: Plan = load("trainwright.stages.plan:build_plan", kind="stage")(recipe, machine, ledger)
    output.result({"plan": plan}, lambda: show(plan, output))
    if machine.probes is None:
        output.note(f"nothing was measured here yet: trainwright doctor {' '.join(args.inputs)} makes this exact")
    return 0 if plan.estimate.fits else 1


def _machine(recipe: Recipe, root: Path) -> Machine:
    """The doctor's record in this workspace or one kept with it, else facts."""
    from trainwright.artifact.store import Workspace
    from trainwright.hardware.machine import gather
    from trainwright.hardware.record import FILE, Machine, read_machine
    from trainwright.pipeline.graph import STAGES
    from trainwright.pipeline.runner import address
    from trainwright.planner.published.ledger import workspaces_with

    wanted = address(STAGES["doctor"], recipe, {}, root).fingerprint
    for place in workspaces_with(root):
        kept = Workspace(place).find("doctor", wanted)
        if kept is not None:
            kept.verify()
            return read_machine(kept.file(FILE))
    return Machine(facts=gather(root, watch_s=0.0))


def show(plan: Plan, output: Output) -> None:
    """Verdict, memory, time, assumptions, rented devices, rejected layouts."""
    found, work = plan.estimate, plan.workload
    output.heading(verdict(plan))
    output.line(
        f"{format_count(sum(plan.parameters.values()))} parameters, {format_count(work.total_tokens)} tokens in "
        f"{work.steps:,} steps on {plan.cluster.device.name}; {work.precision}, micro batch "
        f"{plan.parallel.micro_batch_sequences}, {'compiled' if plan.parallel.compile else 'not compiled'}"
    )
    mfu, low, high = found.mfu, format_seconds(found.seconds.low), format_seconds(found.seconds.high)
    output.line(
        f"{found.tokens_per_s:,.0f} tokens/s, MFU {mfu:.1%}, between {low} and {high}; mostly {found.bottleneck}"
    )
    output.line()
    output.table(("memory at the peak", "size"), parts(found.memory.as_dict(), format_bytes))
    output.line()
    steps, whole = found.phases.as_dict(), found.run_phases.as_dict()
    rows = [(name, format_seconds(steps[name]), format_seconds(whole[name])) for name in whole if whole[name] > 0]
    total = ("total", format_seconds(found.phases.total_s), format_seconds(found.run_phases.total_s))
    output.table(("time", "a step", "the run"), [*rows, total])
    if plan.rentals:
        output.line()
        output.table(
            ("the same run on", "time", "cost", "price per hour", "note"),
            [rental_row(rental) for rental in plan.rentals],
        )
    if plan.rejected:
        output.line()
        output.table(("not chosen", "because"), [(other.name, other.reason) for other in plan.rejected])
    output.line()
    output.table(("rests on", "value", "origin", "source"), [assumption_row(entry) for entry in found.assumptions])


def verdict(plan: Plan) -> str:
    """One line: ``fits: 0.9 GiB of 22.4 GiB; 4 min 50 s``."""
    found = plan.estimate
    memory = f"{format_bytes(found.memory.total_bytes)} of {format_bytes(found.memory_available_bytes)}"
    if found.fits:
        return f"fits: {memory}; {format_seconds(found.seconds.mid)}"
    return f"does not fit: needs {memory}; {plan.rejected[-1].name}: {plan.rejected[-1].reason}"


def parts(whole: Mapping[str, float], text: Callable[[float], str]) -> list[tuple[str, str]]:
    """Parts of a whole that are not empty, and their sum."""
    rows = [(name.replace("_", " "), text(value)) for name, value in whole.items() if value > 0]
    return [*rows, ("total", text(sum(whole.values())))]


def rental_row(rental: Rental) -> tuple[str, ...]:
    """A rented device's row; what is unknown says so."""
    if not rental.fits:
        return rental.device, "", "", "", f"does not fit: {rental.reason}"
    time = f"{format_seconds(rental.seconds_low)} to {format_seconds(rental.seconds_high)}"
    if rental.usd is None or rental.usd_per_device_hour is None:
        return rental.device, time, "unknown", "unknown", rental.reason
    ratio = rental.usd / rental.seconds if rental.seconds else 0.0
    cost = f"{format_usd(ratio * rental.seconds_low)} to {format_usd(ratio * rental.seconds_high)}"
    note = "; ".join(filter(None, (rental.reason, f"{rental.source}@{rental.as_of}")))
    return rental.device, time, cost, f"${rental.usd_per_device_hour:.2f} {rental.provider} {rental.price_kind}", note


def assumption_row(entry: Assumption) -> tuple[str, ...]:
    """An assumption's row."""
    value = entry.value if isinstance(entry.value, str) else f"{entry.value:,.4g}"
    return entry.name, f"{value} {entry.unit}", entry.origin, entry.source
