"""Say whether a run fits, how long it takes and what it costs, before anything is started.

plan RECIPE is about this machine: it rests on what the doctor measured in the recipe's workspace, without that on facts
and stated defaults, and on finished runs here (--calibrate none: not on those). plan --model llama3-70b --tokens 15T
--on 64x8xh100-sxm is about any cluster, plan --compute 1e21 about the best model for a budget. Exit code 1: it does not
fit.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe_step, load_recipe, located, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser

if TYPE_CHECKING:
    from trainwright.spec.plan import Plan, Rental


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    from trainwright.cli.plan.question import add_question

    add_recipe_step(parser)
    add_question(parser)
    answer = parser.add_argument_group("answers")
    answer.add_argument(
        "--explain", metavar="NAME", help="a formula with its numbers: memory.activations, time.forward"
    )
    answer.add_argument(
        "--sweep", metavar="NAME=VALUES", help="vary one thing: nodes=1,2,4,...,64, scale_out=100Gb/s,..."
    )
    answer.add_argument("--draw", metavar="FILE", help="a picture of the plan or the sweep: .svg or .png")
    answer.add_argument(
        "--write-recipe",
        metavar="FILE",
        type=Path,
        help="the recipe that trains what is planned of --model: .yaml, .json",
    )
    budget = parser.add_argument_group("the best model for a budget")
    budget.add_argument("--compute", metavar="FLOPS", help="a budget of FLOPs: 1e21")
    budget.add_argument("--budget", metavar="USD", help="a budget of dollars: 10k$")
    budget.add_argument("--params", metavar="N", help="a model of so many parameters: 7B")
    serving = parser.add_argument_group("serving")
    serving.add_argument("--inference", action="store_true", help="plan generation in place of training")
    serving.add_argument("--batch-size", metavar="N", help="sequences at once (default: 1)")
    serving.add_argument("--context", metavar="N", help="tokens of a finished sequence (default: 2048)")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    if args.compute or args.budget or args.params:
        from trainwright.cli.plan import scaling

        return scaling.run(args)
    if args.inference:
        from trainwright.cli.plan import inference

        return inference.run(args)
    if _as_it_stands(args):
        return _run_recipe(args)
    from trainwright.cli.plan import cluster

    return cluster.run(args)


def _as_it_stands(args: argparse.Namespace) -> bool:
    """Returns whether a recipe is asked about as it would run on this machine, which ``--on here`` says too.

    Raises:
        RecipeError: an option that is about a cluster, where none is named.
    """
    from trainwright.cli.plan import question as about
    from trainwright.hardware.catalogue.nodes import is_this_machine

    every = (*about.OF_TRAINING, *about.OF_CLUSTERS, *about.OF_PLANS, *about.OF_SERVING)
    if args.model is not None:
        return False
    if args.on is None:
        about.refuse(args, every, what="this is about a cluster", fix="say which: --on 8xh100-sxm")
        return True
    has_recipe = bool(args.inputs) or args.preset is not None
    changed = any(getattr(args, name) not in (None, False) for name in every)
    return has_recipe and not changed and is_this_machine(args.on, where="--on")


def _run_recipe(args: argparse.Namespace) -> int:
    """Returns the recipe on this machine; what only this machine lacks for running it is noted, not refused."""
    # The planner brings pydantic, which --help must not wait for.
    from trainwright.cli.plan.question import note_broken
    from trainwright.pipeline.calibration import ledger_of
    from trainwright.pipeline.planning import plan_here, training_of
    from trainwright.planner.evidence.finished import Ledger
    from trainwright.render.plans.local import show

    output, loaded = Output.of(args), load_recipe(args)
    root = workspace_of(args, name=loaded.value.name)
    ledger = ledger_of(args.calibrate, workspace=root)
    with located(loaded):
        training, lacking = training_of(loaded.value, root=root, step=args.step)
        for problem in lacking:
            output.note(f"here this recipe cannot run: {loaded.located(problem)}")
        note_broken(ledger, output)
        plan = plan_here(training, root=root, ledger=ledger or Ledger())
    following = _following(args, plan)
    output.result({"plan": plan}, lambda: show(plan, output, following=following))
    _note_ages(plan.rentals, output)
    if all(each.origin != "probed" for each in plan.estimate.assumptions):
        output.note(f"nothing was measured here yet: trainwright doctor {' '.join(args.inputs)} makes this exact")
    return 0 if plan.estimate.fits else 1


def _following(args: argparse.Namespace, plan: Plan) -> str:
    """Returns the command to type next: the run, or where it does not fit a change, or what else it could run on."""
    from trainwright.cli.plan.following import changed_line, run_line

    if plan.estimate.fits:
        return run_line(args, args.inputs)
    if line := changed_line(args, plan):
        return line
    alone = len(args.inputs) == 1 and args.preset is None
    return f"trainwright recommend --model {shlex.quote(args.inputs[0])}" if alone else ""


def _note_ages(rentals: Sequence[Rental], output: Output) -> None:
    """Notes how many of the prices of rented devices are old, or of an unknown day."""
    from trainwright.hardware.prices.price_list import price_list
    from trainwright.render.catalog.prices import old_prices

    paid = {(each.device, each.provider, each.price_kind, each.usd_per_device_hour, each.as_of) for each in rentals}
    listed = {
        (device, price.provider, price.kind, price.usd_per_device_hour, price.as_of): price
        for device, offers in price_list().prices.items()
        for price in offers
    }
    if (text := old_prices([listed[each] for each in paid if each in listed])) is not None:
        output.note(text)
