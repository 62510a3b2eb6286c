"""Say what to train a model on: every device, number of nodes, cloud and kind of price, ranked by time and dollars.

With a deadline the cheapest that meets it comes first, with a budget alone the fastest within it; with neither the
cheapest, the fastest within 1.25 times its cost, and the fastest. Exit code 1: nothing meets them; what comes closest
is printed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from trainwright.cli.arguments import add_step
from trainwright.cli.output import Output
from trainwright.cli.plan.question import add_run, asked_about, command_line, read_options, with_batch_as_asked
from trainwright.core.errors import RecipeError

if TYPE_CHECKING:
    from trainwright.cli.parser import CommandParser
    from trainwright.planner.plan.question import Question
    from trainwright.planner.plan.scenario import Scenario
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.ranking import Recommendation
    from trainwright.spec.device import ClusterSpec
    from trainwright.spec.run import RunSpec


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    from trainwright.spec.device import PriceKind

    run = parser.add_argument_group("the run")
    run.add_argument("--model", metavar="MODEL", help="a name, a config.json, a recipe, or layers=...")
    add_run(run)
    add_step(parser)
    parser.add_argument("--budget", metavar="USD", help="dollars that the run may cost, for example 50k$")
    parser.add_argument("--deadline", metavar="TIME", help="how long it may take, for example 14d")
    parser.add_argument("--have", metavar="CLUSTER", help="what is there already: 4x8xa100-80gb, or 8xa100-80gb+8xh100")
    parser.add_argument("--have-price", metavar="USD", help="what an hour of a device of it costs (default: 0)")
    parser.add_argument("--have-bought", metavar="USD", help="what a device of it was bought for, machine included")
    parser.add_argument("--have-years", metavar="N", help="years over which that is paid off (default: 4)")
    parser.add_argument("--kwh-price", metavar="USD", help="of their power (default: 0.10 where they were bought)")
    parser.add_argument("--price", metavar="DEVICE=USD", help="of an hour, in place of the lists': h100-sxm=2.1,l4=0.7")
    parser.add_argument("--cloud", metavar="NAMES", help="only these clouds, for example aws,gcp")
    parser.add_argument("--region", metavar="NAMES", help="only these regions, where data may lie: eu,us-east-1")
    parser.add_argument("--devices", metavar="NAMES", help="only these devices, for example h100-sxm,a100-80gb")
    kinds = ",".join(get_args(PriceKind))
    parser.add_argument("--price-kinds", metavar="KINDS", help=f"only these (default: {kinds})")
    parser.add_argument("--most-devices", metavar="N", help="the largest cluster (default: 16384; for adapters a node)")
    parser.add_argument("--draw", metavar="FILE", type=Path, help="time against dollars as FILE.svg or FILE.png")


def run(args: argparse.Namespace) -> int:
    """Search, print and draw."""
    from trainwright.hardware.catalogue.nodes import written
    from trainwright.pipeline.question_fields import OF_RUN, SEARCH
    from trainwright.planner.plan.assumptions import recommended
    from trainwright.planner.plan.rankable import defaults_on, ranked_ways
    from trainwright.planner.search.chances import chance_of
    from trainwright.planner.search.joined import of_answers
    from trainwright.planner.search.ranking import Goals
    from trainwright.render.pictures import drawable
    from trainwright.render.plans.recommendation import Shown, draw, show

    if args.model is None:
        raise RecipeError("which model?", where="--model", fix="for example: --model llama3-70b, or --model FILE.yaml")
    output = Output.of(args)
    if args.draw is not None:
        drawable(args.draw)
    bounds = read_options(args, SEARCH)
    goals = Goals(budget_usd=bounds.pop("budget_usd", None), deadline_s=bounds.pop("deadline_s", None))
    pool: Sequence[ClusterSpec] = bounds.pop("have", ())
    # The run is read and completed as ``plan`` does it, with a batch that divides over many ranks.
    fields = read_options(args, OF_RUN)
    # Of many clusters none is a recipe's own, whose layout would be followed.
    question = asked_about(args, {"layout": {}, **fields}, on=defaults_on(pool, fields))
    scenario, recommendation = ranked_ways(question, pool, goals=goals, **bounds)
    judged = _judged(scenario, pool)
    tight = _tight(scenario.run, pool, bounds, recommendation)
    mended = {written(each.nodes, each.node.devices, each.device.name): _mended(scenario, each) for each in tight}
    payload = {
        "workload": scenario.run.workload,
        "goals": goals,
        "headlines": dict(recommendation.headlines),
        "options": recommendation.options,
        "front": recommendation.front,
        "closest": recommendation.closest,
        "own": recommendation.own,
        "chance_in_time": chance_of(recommendation),
        "refused": recommendation.refused,
        "pool": judged,
        "changes": mended,
        "assumptions": [*of_answers(recommendation, scenario.run), *recommended(scenario)],
    }
    following = _following(args, question, recommendation, bounds, tight)
    shown = Shown(model_name=args.model, judged=judged, kinds=len(pool), mended=mended, following=following)
    try:
        if args.draw is not None:
            draw(recommendation, args.draw, model_name=args.model)
    finally:  # a picture that fails takes no answer away
        output.result(payload, lambda: show(output, scenario, recommendation, shown))
    if args.draw is not None:
        output.note(f"drawn: {args.draw}")
    return 0 if recommendation.options else 1


def _following(
    args: argparse.Namespace,
    question: Question,
    recommendation: Recommendation,
    bounds: Mapping[str, Any],
    tight: Sequence[ClusterSpec],
) -> str:
    """Returns the command that plans the first headline as it is bought; without one what does not fit, if anything."""
    from trainwright.pipeline.question_fields import OF_RUN
    from trainwright.planner.plan.rankable import asked_for

    if not recommendation.options:
        return command_line(args, "plan", OF_RUN, {"on": tight[0].name}) if tight else ""
    best = recommendation.headlines[0][1] if recommendation.goals.are_open else recommendation.options[0]
    asked = asked_for(question, best, price_kinds=bounds.get("price_kinds", ()))
    where = {"clouds": args.cloud, "regions": args.region} if "price" not in asked else {}
    return command_line(args, "plan", OF_RUN, where | with_batch_as_asked(asked, question.model))


def _mended(scenario: Scenario, machines: ClusterSpec) -> tuple[Change, ...]:
    """Returns what would make the run fit there, as its plan says it; nothing where no layout divides it as asked."""
    from trainwright.planner.plan.cluster import planned
    from trainwright.planner.plan.ways import with_ways

    there = scenario.on_devices(machines)
    try:
        made = planned(replace(there, run=replace(there.run, cluster=machines)))
    except RecipeError:
        return ()
    return with_ways(made).changes


def _judged(scenario: Scenario, pool: Sequence[ClusterSpec]) -> Pool | None:
    """Returns the comparison of two kinds of devices; of several kinds, of the pair whose best way is the fastest."""
    from trainwright.planner.search.pools import compare_pool

    pools = [compare_pool(replace(scenario.run, cluster=one), other) for one, other in combinations(pool, 2)]
    return min(pools, key=lambda each: min((way.step_s for way in each.ways), default=math.inf), default=None)


def _tight(
    run: RunSpec, pool: Sequence[ClusterSpec], bounds: Mapping[str, Any], recommendation: Recommendation
) -> list[ClusterSpec]:
    """Clusters on which the run does not fit: those that the user has; where nothing at all fits, the one asked for."""
    from trainwright.hardware.catalogue.nodes import node_size
    from trainwright.hardware.catalogue.support import AXES, lacking_axes
    from trainwright.planner.search.offers import OWN
    from trainwright.planner.search.recommend import largest_cluster

    every = (*recommendation.options, *recommendation.closest)
    usable = {each.device for each in every if each.provider == OWN}
    small = [
        each
        for each in pool
        if each.device.name not in usable
        and any(refusal.kind == "device" and refusal.name == each.device.name for refusal in recommendation.refused)
    ]
    if small or every:
        return small
    names = [each.name for each in recommendation.refused if each.kind == "device"]
    wanted = [name for name in bounds.get("devices", ()) if name in names]
    if not wanted:
        return []
    # A node of it, or one device where the software divides nothing: what is rented first.
    one = largest_cluster(wanted[0], run.workload, 1)
    most = 1 if set(lacking_axes(replace(run, cluster=one))) == set(AXES) else node_size(wanted[0])
    return [largest_cluster(wanted[0], run.workload, min(most, bounds.get("most_devices") or most))]
