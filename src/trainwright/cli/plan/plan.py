"""Say whether a run fits, how long it takes and what it costs, before anything is started.

plan RECIPE is about this machine: it rests on what the doctor measured in the recipe's workspace, without that on facts
and stated defaults, and on finished runs here (--calibrate none: not on those). plan --model llama3-70b --tokens 15T
--on 64x8xh100-sxm is about any cluster, plan --compute 1e21 about the best model for a budget. Exit code 1: it does not
fit.
"""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe_step, load_recipe, located, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser

if TYPE_CHECKING:
    from pathlib import Path

    from trainwright.hardware.machine.record import Machine
    from trainwright.spec.plan import Plan
    from trainwright.spec.recipe import Recipe


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
        (args.compute or args.budget or args.params, "trainwright.cli.plan.scaling"),
        (args.inference, "trainwright.cli.plan.inference"),
        (args.on or args.model, "trainwright.cli.plan.cluster"),
    ):
        if wanted:
            code: int = importlib.import_module(module).run(args)
            return code
    from trainwright.cli.plan import question as about

    every = (*about.OF_TRAINING, *about.OF_CLUSTERS, *about.OF_PLANS, *about.OF_SERVING)
    about.refuse(args, every, what="this is about a cluster", fix="say which: --on 8xh100-sxm")
    return _run_recipe(args)


def _run_recipe(args: argparse.Namespace) -> int:
    """The recipe on this machine."""
    # The planner brings pydantic, which --help must not wait for.
    from trainwright.cli.plan.question import ledger_of, note_broken
    from trainwright.core.registry import load
    from trainwright.pipeline.facts import known_facts
    from trainwright.render.plans.local import show

    output = Output.of(args)
    recipe = _recipe(args, output)
    root = workspace_of(args, name=recipe.name)
    machine, ledger = _machine(recipe, root), ledger_of(args, workspace=root)
    note_broken(ledger, output)
    facts = known_facts(recipe, root=root)
    plan: Plan = load("trainwright.stages.plan:build_plan", kind="stage")(recipe, machine, facts, ledger)
    output.result({"plan": plan}, lambda: show(plan, output))
    if machine.probes is None:
        output.note(f"nothing was measured here yet: trainwright doctor {' '.join(args.inputs)} makes this exact")
    return 0 if plan.estimate.fits else 1


def _recipe(args: argparse.Namespace, output: Output) -> Recipe:
    """The recipe as the training that is planned sees it; what only this machine lacks is noted, not refused.

    Raises:
        RecipeError: what is wrong with it on any machine.
    """
    from trainwright.core.errors import RecipeError, RecipeErrors
    from trainwright.pipeline.preflight import problems
    from trainwright.pipeline.steps import named, steps

    loaded = load_recipe(args)
    line = steps(loaded.value)
    known = [loaded.located(problem) for problem in problems(line, line, {})]
    refusals = [problem for problem in known if isinstance(problem, RecipeError)]
    if refusals:
        raise RecipeErrors(refusals)
    for problem in known:
        output.note(f"here this recipe cannot run: {problem}")
    with located(loaded):
        return named(loaded.value, stage="train", step=args.step).recipe


def _machine(recipe: Recipe, root: Path) -> Machine:
    """The record in this workspace, else facts with what was measured on this machine for another one, if anything."""
    from trainwright.artifact.store import Workspace
    from trainwright.hardware.machine.record import FILE, read_machine
    from trainwright.hardware.machine.shared import kept_machine
    from trainwright.pipeline.graph import STAGES
    from trainwright.pipeline.runner import address

    artifact = Workspace(root).find("doctor", address(STAGES["doctor"], recipe, {}, root).fingerprint)
    if artifact is not None:
        artifact.verify()
        return read_machine(artifact.file(FILE))
    return kept_machine(root)
