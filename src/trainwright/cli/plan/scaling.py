"""``plan --compute``, ``--budget`` and ``--params``: which model and how much data a budget is best spent on."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.cli.plan.question import OF_CLUSTERS, OF_PLANS, OF_SERVING, OF_TRAINING, count, refuse
from trainwright.core.errors import RecipeError, about
from trainwright.core.money import format_usd, parse_usd

if TYPE_CHECKING:
    from trainwright.planner.plan.budget import Asking
    from trainwright.planner.plan.cluster import Planned
    from trainwright.render.plans.scaling import Scaling

DEFAULT_ON = "8xh100-sxm"
"""The cluster that a budget of dollars is spent on, unless the user names one."""
LEAST_FLOPS, MOST_FLOPS = 1e12, 1e30
"""With the least the laws name some tens of thousands of parameters, far below any that they were fitted to; the most
is ten thousand times what any published training took (Llama 3 405B: 3.8e25, arXiv 2407.21783)."""

MOST_PARAMETERS = 10**15
"""Of ``--params``: five hundred times the largest networks that were trained."""


def run(args: argparse.Namespace) -> int:
    """Print what the laws say, how large a batch may be, and on given machines time and price."""
    from trainwright.planner.plan.ways import with_ways
    from trainwright.render.plans.scaling import scaling_document, show

    asked = [name for name in ("compute", "budget", "params") if getattr(args, name) is not None]
    refuse(
        args, (*OF_PLANS, *OF_SERVING, "inference"), what="a budget has no use for this", fix="plan the model itself"
    )
    if args.params is None:
        refuse(args, ("tokens",), what="a budget chooses the length", fix="leave it out, or give --params")
    if args.on is None and args.budget is None:
        of_run = [name for name in (*OF_TRAINING, *OF_CLUSTERS) if name != "tokens"]
        refuse(args, of_run, what="this is about a cluster", fix="say which: --on 8xh100-sxm")
    if len(asked) > 1:
        raise RecipeError("one budget at a time", seen=" and ".join(f"--{name}" for name in asked))
    if args.model is not None or args.inputs:
        raise RecipeError("a budget chooses the model", where=f"--{asked[0]}", fix="leave the model out")
    with about(asked[0]):
        output, scaling = Output.of(args), _scaling(args)
    if scaling.run is not None:
        scaling = replace(scaling, run=with_ways(scaling.run))
    output.result(
        {"scaling": scaling_document(scaling)}, lambda: show(scaling, output, following=_following(args, scaling))
    )
    return 0 if scaling.run is None or scaling.run.plan.estimate.fits else 1


def _following(args: argparse.Namespace, scaling: Scaling) -> str:
    """Returns the command that plans the run of the best model, with all else that was said of it.

    Where it does not fit, that is with the best change after which it does.
    """
    from trainwright.cli.plan.question import command_line, with_batch_as_asked
    from trainwright.core.units import format_count
    from trainwright.hardware.catalogue.nodes import written
    from trainwright.pipeline.question_fields import QUESTION

    if scaling.run is None:
        return ""
    plan, model = scaling.run.plan, scaling.run.scenario.run.transformer
    sizes = ("layers", "width", "heads", "vocabulary")
    named = argparse.Namespace(**vars(args) | {"model": ",".join(f"{name}={getattr(model, name)}" for name in sizes)})
    tokens = format_count(plan.workload.total_tokens).replace(",", "")
    on = written(plan.cluster.nodes, plan.cluster.node.devices, plan.cluster.device.name)
    changes = () if plan.estimate.fits else scaling.run.changes
    changed = with_batch_as_asked(changes[0].fields, model) if changes else {}
    return command_line(named, "plan", QUESTION, {"tokens": tokens, "on": on, **changed})


def _scaling(args: argparse.Namespace) -> Scaling:
    """Returns the answers for the one budget that the arguments name."""
    from trainwright.planner.plan.sizes import MOST_TOKENS
    from trainwright.render.plans.scaling import Scaling, critical_batches, laws_for, over_training_document

    run: Planned | None = None
    if args.budget is not None:
        dollars = parse_usd(args.budget, where="--budget")
        if dollars <= 0:
            raise RecipeError("must be above zero", where="--budget", seen=repr(args.budget))
        flops, run = _afforded(args, dollars)
        laws, title = laws_for(flops=flops), f"{format_usd(dollars)} buy {flops:.3g} FLOPs of training"
    elif args.compute is not None:
        flops = _operations(args.compute)
        laws, title = laws_for(flops=flops), f"{flops:.3g} FLOPs of training"
    else:
        parameters = float(_up_to(args.params, MOST_PARAMETERS, where="--params"))
        laws, title = laws_for(parameters=parameters), "compute-optimal"
    scaling = Scaling(title=title, laws=laws, batches=(), over_training=None, run=run)
    best = scaling.best
    tokens = (
        None
        if args.params is None or args.tokens is None
        else float(_up_to(args.tokens, MOST_TOKENS, where="--tokens"))
    )
    if run is None and args.on is not None:
        run = _planned(args, best.parameters, best.tokens if tokens is None else tokens)
    return replace(
        scaling,
        over_training=None if tokens is None else over_training_document(best.parameters, tokens),
        batches=critical_batches(best.tokens if tokens is None else tokens, best.loss if tokens is None else None),
        run=run,
    )


def _operations(text: str) -> float:
    flops = float(count(text, where="--compute"))
    if flops < LEAST_FLOPS:
        raise RecipeError("too few operations to train a model", seen=text, expected="1e12 or more")
    if flops > MOST_FLOPS:
        raise RecipeError("more operations than any training has", seen=text, expected="at most 1e30")
    return flops


def _up_to(text: str, most: int, *, where: str) -> int:
    if (number := count(text, where=where)) > most:
        raise RecipeError("more than any run has", where=where, seen=text, expected=f"at most {most:.0e}")
    return number


def _afforded(args: argparse.Namespace, usd: float) -> tuple[float, Planned]:
    from trainwright.planner.plan.budget import afforded

    answer = afforded(usd, _asking(args))
    return answer.flops, answer.best


def _planned(args: argparse.Namespace, parameters: float, tokens: float) -> Planned:
    from trainwright.planner.plan.budget import model_of_size
    from trainwright.planner.plan.cluster import planned
    from trainwright.planner.plan.scenario import scenario_of

    return planned(scenario_of(_asking(args)(model_of_size(parameters), max(1, round(tokens)))))


def _asking(args: argparse.Namespace) -> Asking:
    """Returns what asks about a model on so many tokens, with all else that the arguments say of the run."""
    from trainwright.cli.plan.question import here_of, question_fields
    from trainwright.planner.plan.question import Question

    on = args.on or DEFAULT_ON
    fields = question_fields(args) | {"on": on, "here": here_of(on)}
    return lambda model, tokens: Question(**(fields | {"model": model, "tokens": tokens}))
