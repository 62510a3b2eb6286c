"""One thing about a run varied: how layout, time and communication follow, and where more devices stop paying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, get_args

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import did_you_mean, unknown
from trainwright.core.units import parse_count
from trainwright.hardware.catalogue.nodes import HERE, names_here
from trainwright.planner.cost.batches import critical_batch
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import AXES, WORDS, mesh, parse_layout
from trainwright.planner.plan.question import Question, filled
from trainwright.planner.plan.scenario import scenario_of
from trainwright.planner.plan.sizes import MOST_SEQUENCE_TOKENS, MOST_TOKENS
from trainwright.spec.device import PriceKind
from trainwright.spec.plan import Interval
from trainwright.spec.workload import Method, MomentDtype, OptimizerName, Precision, States

FIELDS: Mapping[str, str] = {
    "on": "on",
    "sequence": "sequence_tokens",
    "batch": "batch_tokens",
    **{name: name for name in ("tokens", "precision", "optimizer", "states", "moments", "stack", "method", "rank")},
    **{name: name for name in ("scale_up", "scale_out", "rails", "price_kind")},
}
"""What can be varied beside the cluster's size and the layout's parts, and the question's field that it is."""
COUNTS = frozenset(("sequence", "batch", "tokens", "rank", "rails", "nodes"))
MOST: Mapping[str, int] = {"sequence": MOST_SEQUENCE_TOKENS}
"""Of numbers with a limit of their own; of all others as many as a run has tokens."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "precision": get_args(Precision),
    "optimizer": get_args(OptimizerName),
    "states": get_args(States),
    "moments": get_args(MomentDtype),
    "method": get_args(Method),
    "price_kind": get_args(PriceKind),
}
PAYS = 0.5
"""A device pays while it brings at least this share of what a device brought in the smallest cluster."""
Series = Literal["strong", "weak"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One value of what is varied; without a plan, ``reason`` says why there is none.

    ``efficiency`` is throughput per device over that of the first point of its series.
    """

    value: str
    series: Series | None = None
    devices: int = 0
    layout: str = ""
    fit: str = ""
    memory_bytes: float | None = None
    step_s: float | None = None
    tokens_per_s: float | None = None
    batch_tokens: int | None = None
    mfu: float | None = None
    exposed_s: float | None = None
    idle_s: float | None = None
    phases: Mapping[str, float] | None = None
    seconds: Interval | None = None
    usd: Interval | None = None
    efficiency: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """Points in their order; ``stops_at`` is the last number of devices that pays, None where all or none do."""

    axis: str
    points: tuple[Point, ...]
    stops_at: int | None = None
    critical_batch_tokens: float | None = None
    """Beyond this batch a run of so many tokens needs more of them (``planner.cost.scaling_laws``)."""


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns ``nodes=1,2,4,...,64`` as its name and its values; dots go on as the values before them do.

    Raises:
        RecipeError: an unknown name, no values, or a series that does not reach its end.
    """
    axis, equals, rest = (part.strip() for part in text.partition("="))
    known = ["nodes", *AXES, *WORDS, *FIELDS]
    if not equals or axis not in known:
        expected, fix = f"NAME=VALUES of {', '.join(known)}", did_you_mean(axis, known)
        raise RecipeError("nothing to vary by that name", field="sweep", seen=repr(text), expected=expected, fix=fix)
    values = [value.strip() for value in rest.split(",") if value.strip()]
    if not values:
        raise RecipeError("no values to vary over", field="sweep", seen=repr(text), expected=f"{axis}=A,B,...")
    if "..." in values:
        values = _continued(values, text)
    return axis, tuple(dict.fromkeys(values))


def _count(value: str) -> int:
    try:
        return parse_count(value)
    except RecipeError as error:
        raise error.about("sweep") from error


def _bounded(axis: str, value: str) -> int:
    """Returns a number that a run can have; the slip of a pen is refused, as where it is asked for alone."""
    number, most = _count(value), MOST.get(axis, MOST_TOKENS)
    if not 1 <= number <= most:
        expected = f"1 to {most:.0e}"
        raise RecipeError("less or more than any run has", field="sweep", seen=f"{axis}={value}", expected=expected)
    return number


def _continued(values: list[str], text: str) -> list[str]:
    """Returns the series: two values before the dots give a ratio, or else a difference; one doubles."""
    place = values.index("...")
    if place == 0 or len(values) != place + 2:
        raise RecipeError("dots stand before the last value", field="sweep", seen=repr(text), expected="1,2,4,...,64")
    known = [_count(value) for value in values[:place]]
    end, last = _count(values[-1]), known[-1]
    before = known[-2] if len(known) > 1 else 0
    grows = 2 if len(known) == 1 else last // before if before and last % before == 0 and last > before else 0
    series_values = list(known)
    # 2, 4, ... and 1, 2, ... double; 2, 4, 6, ... does not.
    if len(known) > 2 and known[1] * known[1] != known[0] * known[2]:
        grows = 0
    while series_values[-1] < end and last > before:
        series_values.append(series_values[-1] * grows if grows > 1 else series_values[-1] + last - before)
    if series_values[-1] != end:
        what, expected = "the series does not reach {end}", f"such as {series_values[-1]}"
        raise RecipeError(what, field="sweep", seen=repr(text), expected=expected, end=end)
    return [str(value) for value in series_values]


def sweep(question: Question, axis: str, values: Sequence[str]) -> Sweep:
    """Returns a plan for each value; for ``nodes`` two, with one batch and with one that grows with them.

    Raises:
        RecipeError: a value that cannot be read, or none of them can be planned.
    """
    if axis != "nodes":
        asked = [varied(question, axis, value) for value in values]
        points = [_point(*each) for each in zip(values, _priced(asked) if axis == "on" else asked, strict=True)]
        return Sweep(axis=axis, points=_planned(points, axis))
    question = filled(question)
    base = scenario_of(question).run.workload
    fixed = replace(question, batch_tokens=base.batch_tokens, tokens=base.total_tokens)
    first = _nodes(values[0])
    each = max(1, fixed.batch_tokens or 1) // first if question.batch_tokens is not None else None
    strong = [_point(value, _with_nodes(fixed, _nodes(value)), "strong") for value in values]
    smallest = each or _least_batch(fixed, first)
    grown = [(value, replace(fixed, batch_tokens=smallest * _nodes(value))) for value in values]
    weak = [_point(value, _with_nodes(question, _nodes(value)), "weak") for value, question in grown]
    both = _planned([*_efficient(strong), *_efficient(weak)], axis)
    critical = critical_batch(question.model, base.total_tokens).tokens
    return Sweep(axis=axis, points=both, stops_at=_stops_at(both), critical_batch_tokens=critical)


def varied(question: Question, axis: str, value: str) -> Question:
    """Returns the question with one thing changed."""
    if axis in AXES or axis in WORDS:
        return replace(question, layout=question.layout | parse_layout(f"{axis}={value}", field="sweep"))
    if axis == "nodes":
        return _with_nodes(question, _nodes(value))
    if axis in CHOICES and value not in CHOICES[axis]:
        title = axis.replace("_", " ")
        raise RecipeError("unknown {axis}", field="sweep", axis=title, **unknown(value, CHOICES[axis]))
    if axis == "rank" and question.method in (None, "full"):
        fix = "set `method` to lora or qlora"
        raise RecipeError("all weights are trained, and no adapters", field="sweep", seen=f"rank={value}", fix=fix)
    changed: dict[str, Any] = {FIELDS[axis]: _bounded(axis, value) if axis in COUNTS else value}
    if axis == "batch":
        changed["batch_tokens"] *= question.model.batch_unit_tokens
    if axis in question.unmeasured:  # what the recipe's optimizer measured says nothing of those in its place
        others = {kind: name for kind, name in question.unmeasured.items() if kind != axis}
        changed |= {"unmeasured": others, "references": ()}
    return replace(question, **changed)


def _priced(asked: Sequence[Question]) -> list[Question]:
    """Returns questions about several clusters, those without a price among the given ones at the price lists'.

    Raises:
        RecipeError: prices are given, and none is of these devices.
    """
    given = asked[0].price
    if not isinstance(given, Mapping):
        return list(asked)
    theirs = [_device_of(each) for each in asked]
    if not given.keys() & set(theirs):
        expected = " or ".join(f"{name}=USD" for name in dict.fromkeys(theirs) if name)
        raise RecipeError("no price of these devices", field="price", seen=", ".join(given), expected=expected)
    return [each if name in given else replace(each, price=None) for each, name in zip(asked, theirs, strict=True)]


def _device_of(question: Question) -> str:
    """Returns the device of a cluster; empty where that is not known, which its point says."""
    try:
        return question.cluster().device.name
    except RecipeError:
        return ""


def _with_nodes(question: Question, nodes: int) -> Question:
    machines = question.cluster()
    name = HERE if names_here(question.on) else machines.device.name
    return replace(question, on=f"{nodes}x{machines.node.devices}x{name}")


def _nodes(value: str) -> int:
    nodes = _count(value)
    if nodes < 1:
        raise RecipeError("a cluster has at least one node", field="sweep", seen=f"nodes={value}")
    return nodes


def _least_batch(question: Question, first: int) -> int:
    """Returns the tokens for one node of a batch that grows: eight sequences a device."""
    run = scenario_of(_with_nodes(question, first)).run
    return 8 * run.cluster.node.devices * run.workload.sequence_tokens


def _point(value: str, question: Question, series: Series | None = None) -> Point:
    try:
        made = planned(scenario_of(question))
    except RecipeError as error:
        return Point(value=value, series=series, reason=f"{error.what} ({error.seen})" if error.seen else error.what)
    plan, step = made.plan, made.choice.forecast.step
    estimate = plan.estimate
    return Point(
        value=value,
        series=series,
        devices=plan.cluster.devices,
        layout=mesh(plan.parallel, plan.workload.recompute),
        fit=estimate.fit or "",
        memory_bytes=estimate.memory.total_bytes,
        step_s=estimate.phases.total_s,
        tokens_per_s=estimate.tokens_per_s,
        batch_tokens=plan.workload.batch_tokens,
        mfu=estimate.mfu,
        exposed_s=float(step.communicate[0]),
        idle_s=float(step.idle[0]),
        phases=estimate.phases.as_dict(),
        seconds=estimate.seconds,
        usd=estimate.usd,
    )


def _planned(points: list[Point], axis: str) -> tuple[Point, ...]:
    if all(point.step_s is None for point in points):
        raise RecipeError("no value of {axis} can be planned", field="sweep", seen=points[0].reason, axis=axis)
    return tuple(points)


def _efficient(points: list[Point]) -> list[Point]:
    """Returns the points with throughput per device over that of the first one that fits."""
    first, compared = None, []
    for point in points:
        if point.tokens_per_s is not None and point.fit != "does not fit":
            each = point.tokens_per_s / point.devices
            first = first or each
            point = replace(point, efficiency=each / first)
        compared.append(point)
    return compared


def _stops_at(points: Sequence[Point]) -> int | None:
    """Returns the largest cluster whose last devices still pay, if larger ones do not."""
    strong = (point for point in points if point.series == "strong" and point.efficiency is not None)
    known = [(point.devices, point.tokens_per_s) for point in strong if point.tokens_per_s is not None]
    for (devices, speed), (more, faster) in pairwise(known):
        if (faster - speed) / (more - devices) < PAYS * known[0][1] / known[0][0]:
            return devices
    return None
