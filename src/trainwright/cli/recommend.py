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
from trainwright.cli.parser import CommandParser
from trainwright.cli.pictures import drawable
from trainwright.cli.plan_cluster import expected
from trainwright.core.errors import RecipeError
from trainwright.core.units import (
    format_bytes,
    format_count,
    format_seconds,
    format_usd,
    parse_count,
    parse_seconds,
    parse_usd,
)

if TYPE_CHECKING:
    from trainwright.planner.question import Scenario
    from trainwright.planner.search.changes import Change
    from trainwright.planner.search.pools import Pool
    from trainwright.planner.search.recommend import Option, Recommendation, Refusal
    from trainwright.spec.device import ClusterSpec
    from trainwright.spec.plan import Assumption

T = TypeVar("T")
ROWS = 10
UNPRICED_ROWS = 5
REFUSED_ROWS = 12
CHANGE_ROWS = 8
PASSED_ON = ("model", "tokens", "batch", "sequence", "precision", "optimizer", "states", "method", "stack")
"""Options that mean what they mean to ``plan``."""
ANY_CLUSTER = "32x8xh100-sxm"
"""What defaults of a run are resolved on where the user has nothing: precision, and images of a batch."""


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
    from trainwright.planner.search.changes import changes
    from trainwright.planner.search.recommend import Goals, recommend

    output = Output.of(args)
    if args.draw is not None:
        drawable(args.draw)
    pool = _pool(args)
    scenario = _scenario(args, pool)
    goals = Goals(budget_usd=_read(args.budget, parse_usd, "--budget"),
                  deadline_s=_read(args.deadline, parse_seconds, "--deadline"))  # fmt: skip
    found = recommend(
        scenario.model, scenario.workload, scenario.stack, devices=_names(args.devices),
        clouds=_names(args.cloud), have=pool,
        have_usd_per_device_hour=_read(args.have_price, parse_usd, "--have-price") or 0.0, goals=goals,
        price_kinds=_kinds(args.price_kinds), most_devices=_read(args.most_devices, parse_count, "--most-devices") or 1,
    )  # fmt: skip
    judged = _judged(scenario, pool)
    tight = _tight(args, pool, found)
    mended = {_name(each): changes(scenario.model, scenario.workload, each, scenario.stack) for each in tight}
    payload = {
        "workload": scenario.workload, "goals": goals, "options": found.options, "front": found.front,
        "closest": found.closest, "refused": found.refused, "pool": judged, "changes": mended,
        "assumptions": _assumptions(scenario),
    }  # fmt: skip
    output.result(payload, lambda: _show(args, output, scenario, found, judged=judged, mended=mended))
    if args.draw is not None:
        _draw(args, output, found)
    return 0 if found.options else 1


def _judged(scenario: Scenario, pool: Sequence[ClusterSpec]) -> Pool | None:
    """Whether to use two kinds of devices together: of several kinds, the pair whose best way is the fastest."""
    from trainwright.planner.search.pools import judge

    found = [judge(scenario.model, scenario.workload, pair, scenario.stack) for pair in combinations(pool, 2)]
    return min(found, key=lambda each: min((way.step_s for way in each.ways), default=math.inf), default=None)


def _name(machines: ClusterSpec) -> str:
    """As ``--on`` takes it."""
    return f"{machines.nodes}x{machines.node.devices}x{machines.device.name}"


def _read(text: str | None, parse: Callable[[str], T], where: str) -> T | None:
    """The value of an option, if it was given; above zero but for a price."""
    if text is None:
        return None
    try:
        value = parse(text)
    except RecipeError as error:
        raise RecipeError(error.what, where=where, seen=error.seen, expected=error.expected) from error
    if value == 0 and where != "--have-price":
        raise RecipeError("must be above zero", where=where, seen=repr(text))
    return value


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _kinds(text: str) -> list[Any]:
    from trainwright.spec.device import PriceKind

    known = get_args(PriceKind)
    found = [name.replace("-", "_") for name in _names(text) or ()]
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        raise RecipeError("unknown kind of price", where="--price-kinds", seen=repr(text), expected=", ".join(known))
    return found


def _pool(args: argparse.Namespace) -> tuple[ClusterSpec, ...]:
    from trainwright.planner.search.offers import read_pool

    return () if args.have is None else read_pool(args.have, where="--have")


def _scenario(args: argparse.Namespace, pool: Sequence[ClusterSpec]) -> Scenario:
    """The run, read and completed as ``plan`` does it, with a batch that divides over many ranks."""
    from trainwright.cli.arguments import add_recipe
    from trainwright.cli.plan_question import add_question, question_of
    from trainwright.planner.question import resolve
    from trainwright.planner.search.recommend import divisible
    from trainwright.spec.plan import Assumption

    parser = CommandParser(prog="trainwright recommend")
    add_recipe(parser)
    add_question(parser)
    words = ["--on", _name(pool[0]) if pool else ANY_CLUSTER]
    for name in PASSED_ON:
        if getattr(args, name) is not None:
            words += [f"--{name}", getattr(args, name)]
    scenario = resolve(question_of(parser.parse_args(words)))
    workload = scenario.workload
    sequences = divisible(workload.batch_sequences, unit=math.lcm(*(each.devices for each in pool)))
    if sequences == workload.batch_sequences:
        return scenario
    batch = sequences * workload.sequence_tokens
    said = Assumption(
        name="batch", value=float(batch), unit="tokens", origin="given",
        source=f"of what is near {workload.batch_tokens:,} tokens, what most powers of two divide",
    )  # fmt: skip
    steps = max(1, -(-workload.total_tokens // batch))
    return replace(
        scenario, workload=replace(workload, batch_tokens=batch, steps=steps),
        assumptions=(*(each for each in scenario.assumptions if each.name != "batch"), said),
    )  # fmt: skip


def _tight(args: argparse.Namespace, pool: Sequence[ClusterSpec], found: Recommendation) -> list[ClusterSpec]:
    """Clusters on which the run does not fit: those that the user has; where nothing at all fits, the one asked for."""
    from trainwright.hardware.nodes import cluster, node_size
    from trainwright.planner.search.offers import OWN

    every = (*found.options, *found.closest)
    own = {each.device for each in every if each.provider == OWN}
    small = [each for each in pool if each.device.name not in own and any(
        refusal.kind == "device" and refusal.name == each.device.name for refusal in found.refused)]  # fmt: skip
    if small or every:
        return small
    names = [each.name for each in found.refused if each.kind == "device"]
    if not names or args.devices is None:
        return []
    size = node_size(names[0])
    most = _read(args.most_devices, parse_count, "--most-devices") or size
    return [cluster(f"{most}x{names[0]}" if most < size else f"{most // size}x{size}x{names[0]}")]


def _show(
    args: argparse.Namespace, output: Output, scenario: Scenario, found: Recommendation, *, judged: Pool | None,
    mended: dict[str, tuple[Change, ...]],
) -> None:  # fmt: skip
    work = scenario.workload
    output.heading(_verdict(found))
    images = work.sequence_tokens == 1
    unit, each = ("images", "images") if images else ("tokens", f"sequences of {work.sequence_tokens:,}")
    output.line(
        f"{args.model}: {format_count(work.total_tokens)} {unit} in {work.steps:,} steps of {work.batch_sequences:,} "
        f"{each}; {work.precision}, {work.optimizer}, {scenario.stack.title}"
    )
    if judged is not None:
        _show_pool(output, judged)
    columns = ("", "run on", "from", "time", "cost", "9 of 10 between", "MFU", "memory", "layout")
    priced = [option for option in found.distinct(len(found.options) or ROWS) if option.usd is not None][:ROWS]
    if priced:
        output.line()
        title = "best of each device and kind of price" if found.options else "closest"
        output.table(columns, [_row(option) for option in priced], title=title)
        _show_spot(output, [option for option in priced if option.price_kind == "spot"])
    front = _thinned(found.front, ROWS)
    if len(front) > 1:
        output.line()
        output.table(columns, [_row(option) for option in front], title="time against cost: nothing betters these")
    unpriced = [option for option in found.distinct(len(found.options)) if option.usd is None][:UNPRICED_ROWS]
    if unpriced:
        output.line()
        output.table(columns, [_row(option) for option in unpriced], title="fastest without a known price")
    for name, rows in mended.items():
        _show_changes(output, name, rows)
    if found.refused:
        output.line()
        output.table(("left out", "how many", "because"), _refused(found.refused))
    output.line()
    output.table(("rests on", "value", "origin", "source"), [_assumption(each) for each in _assumptions(scenario)])
    output.note("* on the front of time against cost; ? so near to the memory that the prediction's error decides")


def _verdict(found: Recommendation) -> str:
    """One line: what to take, or what comes closest."""
    goals = found.goals
    wanted = " and ".join(
        filter(None, (
            "" if goals.budget_usd is None else f"a budget of {format_usd(goals.budget_usd)}",
            "" if goals.deadline_s is None else f"a deadline of {format_seconds(goals.deadline_s)}",
        ))
    )  # fmt: skip
    if found.options:
        best = found.options[0]
        for_what = f" for {wanted}" if wanted else ""
        return f"best{for_what}: {_said(best)}"
    if found.closest:
        return f"nothing meets {wanted}; closest: {'; or '.join(_said(option) for option in found.closest)}"
    return "it fits on none of these devices"


def _said(option: Option) -> str:
    source = f" ({option.source})" if option.source else ""
    cost = "price unknown" if option.usd is None else format_usd(option.usd)
    return f"{option.cluster}{source}, {format_seconds(option.seconds)}, {cost}"


def _row(option: Option) -> tuple[str, ...]:
    from trainwright.planner.choose import mesh

    cost = "unknown" if option.usd is None else format_usd(option.usd)
    marks = ("*" if option.front else "") + ("?" if option.unsure else "")
    return (
        marks, option.cluster, option.source or "unknown",
        format_seconds(option.seconds), cost,
        f"{option.low_s / option.seconds:.2f} and {option.high_s / option.seconds:.2f} times",
        f"{option.mfu:.0%}", f"{format_bytes(option.memory_bytes)} of {format_bytes(option.memory_available_bytes)}",
        mesh(option.parallel, option.recompute),
    )  # fmt: skip


def _show_spot(output: Output, rows: Sequence[Option]) -> None:
    """How often nodes are taken back, and the checkpoints that suit it."""
    if not rows:
        return
    output.line()
    columns = ("on spot nodes", "from", "interruptions to expect", "a checkpoint every")
    output.table(
        columns,
        [
            (row.cluster, row.provider, expected(row.interruptions), format_seconds(row.checkpoint_interval_s))
            for row in rows
        ],
    )


def _thinned(front: Sequence[Option], count: int) -> list[Option]:
    """At most ``count`` of the front, its ends among them."""
    if len(front) <= count:
        return list(front)
    return [front[round(place * (len(front) - 1) / (count - 1))] for place in range(count)]


def _show_pool(output: Output, judged: Pool) -> None:
    output.line()
    output.line(judged.verdict)
    rows = [(way.name, format_seconds(way.step_s), format_seconds(way.exchange_s)) for way in judged.ways]
    output.table(("way to use both", "a step", "of it between them"), rows)


def _show_changes(output: Output, name: str, rows: Sequence[Change]) -> None:
    from trainwright.planner.choose import mesh

    output.line()
    if not rows:
        output.line(f"no change makes it fit on {name}")
        return
    table = [
        (
            f"{each.name}{' (adapters alone are trained)' if each.trains_less else ''}", f"{each.slowdown:.2f}x",
            mesh(each.best.parallel, each.best.recompute),
        )
        for each in rows[:CHANGE_ROWS]
    ]  # fmt: skip
    output.table(("change", "device-seconds a token", "layout"), table, title=f"what would make it fit on {name}")


def _refused(refused: Sequence[Refusal]) -> list[tuple[str, ...]]:
    """One row for each reason; names of a long row are counted."""
    grouped: dict[tuple[str, str], list[Refusal]] = {}
    for each in refused:
        grouped.setdefault((each.kind, each.reason), []).append(each)
    rows = []
    for found in grouped.values():
        names = [each.name for each in found]
        text = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        count = sum(each.count for each in found)
        noun = {"device": "device", "layout": "layout", "price": "offer", "goal": "option"}[found[0].kind]
        rows.append((text, f"{count:,} {noun}{'' if count == 1 else 's'}", found[0].reason))
    devices = [row for row, each in zip(rows, grouped, strict=True) if each[0] == "device"]
    others = [row for row, each in zip(rows, grouped, strict=True) if each[0] != "device"]
    if len(devices) > REFUSED_ROWS:
        more = len(devices) - REFUSED_ROWS
        devices = [*devices[:REFUSED_ROWS], (f"{more} more", "", "see --json")]
    return [*devices, *others]


def _assumptions(scenario: Scenario) -> list[Assumption]:
    """What the run's defaults and the ways to buy rest on."""
    from trainwright.planner.goodput import DEVICE_MTBF_S, HOUR_S, SPOT_NODE_MTBF_S, SPOT_OTHER_MTBF_S
    from trainwright.spec.plan import Assumption

    named = {"sequence", "tokens", "batch", "adapters", "tokens of an image", "images", "software"}
    said = [each for each in scenario.assumptions if each.name in named]
    lives = [f"{name} {seconds / HOUR_S:,.0f} h" for name, seconds in SPOT_NODE_MTBF_S.items()]
    lives.append(f"others {SPOT_OTHER_MTBF_S / HOUR_S:,.0f} h")
    return [
        *said,
        Assumption(
            name="failures", value=f"{DEVICE_MTBF_S / HOUR_S:,.0f}", unit="hours between them for one device",
            origin="default", source="Llama 3's 54 days on 16,384 H100 (arXiv 2407.21783); Daly's checkpoint interval",
        ),
        Assumption(
            name="spot nodes", value=", ".join(lives), unit="until one is taken back", origin="default",
            source="what AWS, Azure and GCP publish; a guess for the others",
        ),
        Assumption(
            name="availability", value="not known", unit="", origin="default",
            source="whether a cloud has so many devices, on spot above all, no price list says",
        ),
        Assumption(
            name="prices", value="per device and hour", unit="", origin="catalog",
            source="the cheapest checked one of each cloud and kind: trainwright catalog shows their age",
        ),
    ]  # fmt: skip


def _assumption(entry: Assumption) -> tuple[str, ...]:
    value = entry.value if isinstance(entry.value, str) else format_count(entry.value)
    return entry.name, f"{value} {entry.unit}".strip(), entry.origin, entry.source


def _draw(args: argparse.Namespace, output: Output, found: Recommendation) -> None:
    from trainwright.cli.pictures import ParetoPoint, pareto

    points = [
        ParetoPoint(name=_said(option).partition(",")[0], seconds=option.seconds, usd=option.usd, front=option.front)
        for option in found.options or found.closest
        if option.usd is not None
    ]
    if not points:
        raise RecipeError("there is nothing to draw: no option has a price", where="--draw")
    pareto(
        points, args.draw, deadline_s=found.goals.deadline_s, budget_usd=found.goals.budget_usd,
        title=f"{args.model}: time against cost",
    )  # fmt: skip
    output.note(f"drawn: {args.draw}")
