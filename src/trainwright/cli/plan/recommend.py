"""Say what to train a model on: every device, number of nodes, cloud and kind of price, ranked by time and dollars.

With a deadline the cheapest that meets it comes first, with a budget alone the fastest within it, with neither the
least time times dollars. Exit code 1: nothing meets them; what comes closest is printed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from trainwright.cli.output import Output
from trainwright.cli.plan.question import asked_about, question_fields
from trainwright.core.errors import RecipeError
from trainwright.core.money import parse_usd
from trainwright.core.units import parse_count

if TYPE_CHECKING:
    from trainwright.cli.parser import CommandParser
    from trainwright.planner.plan.scenario import Scenario
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.recommend import Recommendation
    from trainwright.spec.device import ClusterSpec

T = TypeVar("T")
OF_RUN = ("tokens", "batch", "sequence", "precision", "optimizer", "states", "method", "stack")
"""Options that mean what they mean to ``plan``."""


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    from trainwright.spec.device import PriceKind

    run = parser.add_argument_group("the run")
    run.add_argument("--model", required=True, metavar="MODEL", help="a name, a config.json, a recipe, or layers=...")
    run.add_argument("--tokens", metavar="N", help="tokens to train on: 15T (default: 20 for each parameter)")
    run.add_argument("--sequence", metavar="N", help="tokens of a sequence (default: the model's, at most 8192)")
    run.add_argument("--batch", metavar="TOKENS", help="tokens of a step: 4M; rounded to what divides over many ranks")
    run.add_argument("--precision", metavar="DTYPE", help="bf16, fp16, fp32, tf32, fp8 or nvfp4")
    run.add_argument("--optimizer", metavar="NAME", help="adamw, muon, adafactor or sgd")
    run.add_argument("--states", metavar="KIND", help="how trained weights are kept: fp32, mixed or pure")
    run.add_argument("--method", metavar="NAME", help="full, lora or qlora")
    run.add_argument("--stack", metavar="NAME", help="training software: torchtitan, megatron-core, ...")
    parser.add_argument("--budget", metavar="USD", help="dollars that the run may cost, for example 50k$")
    parser.add_argument("--deadline", metavar="TIME", help="how long it may take, for example 14d")
    parser.add_argument("--have", metavar="CLUSTER", help="what is there already: 4x8xa100-80gb, or 8xa100-80gb+8xh100")
    parser.add_argument("--have-price", metavar="USD", default="0", help="what an hour of a device of it costs")
    parser.add_argument("--cloud", metavar="NAMES", help="only these clouds, for example aws,gcp")
    parser.add_argument("--devices", metavar="NAMES", help="only these devices, for example h100-sxm,a100-80gb")
    kinds = ",".join(get_args(PriceKind))
    parser.add_argument("--price-kinds", metavar="KINDS", default=kinds, help=f"only these (default: {kinds})")
    parser.add_argument("--most-devices", metavar="N", default="16384", help="the largest cluster (default: 16384)")
    parser.add_argument("--draw", metavar="FILE", type=Path, help="time against dollars as FILE.svg or FILE.png")


def run(args: argparse.Namespace) -> int:
    """Search, print and draw."""
    from trainwright.pipeline.question_fields import SEARCH, read_fields
    from trainwright.planner.plan.assumptions import recommended
    from trainwright.planner.plan.rankable import cluster_name
    from trainwright.planner.search.changes import changes
    from trainwright.planner.search.recommend import Goals, recommend
    from trainwright.render.pictures import drawable
    from trainwright.render.plans.recommendation import draw, show

    output = Output.of(args)
    if args.draw is not None:
        drawable(args.draw)
    pool = _pool(args)
    scenario = _scenario(args, pool)
    bounds = read_fields(
        {"budget_usd": args.budget, "deadline_s": args.deadline, "devices": args.devices, "clouds": args.cloud},
        SEARCH | {"deadline_s": _span},
    )
    goals = Goals(budget_usd=bounds.get("budget_usd"), deadline_s=bounds.get("deadline_s"))
    recommendation = recommend(
        scenario.run,
        devices=bounds.get("devices"),
        clouds=bounds.get("clouds"),
        have=pool,
        have_usd_per_device_hour=_read(args.have_price, parse_usd, "--have-price") or 0.0,
        goals=goals,
        price_kinds=_kinds(args.price_kinds),
        most_devices=_read(args.most_devices, parse_count, "--most-devices") or 1,
    )
    judged = _judged(scenario, pool)
    tight = _tight(args, pool, recommendation)
    mended = {cluster_name(each): changes(replace(scenario.run, cluster=each)) for each in tight}
    payload = {
        "workload": scenario.run.workload,
        "goals": goals,
        "options": recommendation.options,
        "front": recommendation.front,
        "closest": recommendation.closest,
        "refused": recommendation.refused,
        "pool": judged,
        "changes": mended,
        "assumptions": recommended(scenario),
    }
    if args.draw is not None:
        draw(recommendation, args.draw, model_name=args.model)
    output.result(
        payload, lambda: show(output, scenario, recommendation, model_name=args.model, judged=judged, mended=mended)
    )
    if args.draw is not None:
        output.note(f"drawn: {args.draw}")
    return 0 if recommendation.options else 1


def _judged(scenario: Scenario, pool: Sequence[ClusterSpec]) -> Pool | None:
    """Returns the comparison of two kinds of devices; of several kinds, of the pair whose best way is the fastest."""
    from trainwright.planner.search.pools import compare_pool

    pools = [compare_pool(replace(scenario.run, cluster=one), other) for one, other in combinations(pool, 2)]
    return min(pools, key=lambda each: min((way.step_s for way in each.ways), default=math.inf), default=None)


def _read(text: str | None, parse: Callable[[str], T], where: str) -> T | None:
    """The value of an option, if it was given; above zero but for a price."""
    if text is None:
        return None
    try:
        value = parse(text)
    except RecipeError as error:
        raise error.at(where) from error
    if value == 0 and where != "--have-price":
        raise RecipeError("must be above zero", where=where, seen=repr(text))
    return value


def _span(text: str) -> float:
    """Seconds of a time with its unit: whoever writes 14 means days."""
    from trainwright.pipeline.question_fields import SEARCH

    seconds: float = SEARCH["deadline_s"](text)
    if text.strip().replace(".", "", 1).replace("_", "").isdigit():
        raise RecipeError("a time needs its unit", seen=repr(text), expected="for example 14d or 36h")
    return seconds


def _kinds(text: str) -> list[Any]:
    from trainwright.spec.device import PriceKind

    known = get_args(PriceKind)
    kinds = [name.replace("-", "_") for name in map(str.strip, text.split(",")) if name]
    unknown = [name for name in kinds if name not in known]
    if unknown or not kinds:
        raise RecipeError("unknown kind of price", where="--price-kinds", seen=repr(text), expected=", ".join(known))
    return kinds


def _pool(args: argparse.Namespace) -> tuple[ClusterSpec, ...]:
    from trainwright.planner.search.offers import read_pool

    return () if args.have is None else read_pool(args.have, where="--have")


def _scenario(args: argparse.Namespace, pool: Sequence[ClusterSpec]) -> Scenario:
    """The run, read and completed as ``plan`` does it, with a batch that divides over many ranks."""
    from trainwright.planner.plan.rankable import defaults_on, rankable

    fields = question_fields({name: getattr(args, name) for name in OF_RUN})
    return rankable(asked_about(args, fields, on=defaults_on(pool)), pool)


def _tight(args: argparse.Namespace, pool: Sequence[ClusterSpec], recommendation: Recommendation) -> list[ClusterSpec]:
    """Clusters on which the run does not fit: those that the user has; where nothing at all fits, the one asked for."""
    from trainwright.hardware.catalogue.nodes import cluster, node_size
    from trainwright.planner.search.offers import OWN

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
    if not names or args.devices is None:
        return []
    size = node_size(names[0])
    most = _read(args.most_devices, parse_count, "--most-devices") or size
    return [cluster(f"{most}x{names[0]}" if most < size else f"{most // size}x{size}x{names[0]}")]
