"""Two kinds of devices, one run: use both, and how, or leave one of them idle.

Three ways are compared by seconds of a step: each cluster alone; both, the batch divided by speed (each side holds the
whole model, gradients cross between them once a step); both, the layers divided by speed (activations cross).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.core.units import format_seconds
from trainwright.planner.counts.adapters import count_trained
from trainwright.planner.forecast.communication.collectives import OUT_EFFICIENCY
from trainwright.planner.search.layouts import Ranked, best_layouts
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import RunSpec

WayKind = Literal["alone", "batch", "layers"]
BATCH_PARTS = 32
"""Into how many equal parts the batch is cut between two sides: an uneven share must still divide over its ranks."""
NEARBY = 3
"""Divisions tried on each side of the one that equal speeds would give."""
WORTH = 1.05
"""Speed-up below which a second kind of device is not worth its trouble."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One cluster's part: ``share`` of the batch or of the layers, and its layout."""

    cluster: ClusterSpec
    share: float
    best: Ranked


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a step is made, and its seconds, of which ``exchange_s`` pass between the sides."""

    kind: WayKind
    sides: tuple[Side, ...]
    step_s: float
    exchange_s: float = 0.0

    @property
    def name(self) -> str:
        """Returns ``8 h100-sxm alone`` or ``batch 34 % on 8 a100-sxm-80gb, 66 % on 8 h100-sxm``."""
        parts = [f"{each.cluster.devices:,} {each.cluster.device.name}" for each in self.sides]
        if self.kind == "alone":
            return f"{parts[0]} alone"
        shares = (f"{each.share:.0%} on {part}" for each, part in zip(self.sides, parts, strict=True))
        return f"{self.kind} {', '.join(shares)}"


BOTH = "use both"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """All ways that fit, fastest first; ``verdict`` says which to take and why."""

    ways: tuple[Way, ...]
    verdict: str

    @property
    def together(self) -> bool:
        """Returns True where both are to be used."""
        return self.verdict.startswith(BOTH)


def compare_pool(run: RunSpec, other: ClusterSpec) -> Pool:
    """Returns whether to use the run's cluster and another one together; raises as ``search.layouts.compare``."""
    there = replace(run, cluster=other)
    alone = [way for each in (run, there) if (way := _alone(each)) is not None]
    ways = [*alone, *_by_batch(run, there), *_by_layers(run, there)]
    best = {(way.kind, way.sides[0].cluster.device.name): way for way in sorted(ways, key=lambda way: -way.step_s)}
    fitting = tuple(sorted(best.values(), key=lambda way: way.step_s))
    return Pool(ways=fitting, verdict=_verdict(fitting))


def _alone(run: RunSpec) -> Way | None:
    best = _fastest(run)
    if best is None:
        return None
    return Way(kind="alone", sides=(Side(cluster=run.cluster, share=1.0, best=best),), step_s=best.step_s)


def _fastest(run: RunSpec) -> Ranked | None:
    best = best_layouts(run, count=1)
    return best[0] if best and best[0].fits else None


def _by_batch(one: RunSpec, other: RunSpec) -> Iterator[Way]:
    """Yields divisions of the batch near the one by speed."""
    workload = one.workload
    parts = min(BATCH_PARTS, workload.batch_sequences)
    unit = workload.batch_sequences // parts * workload.sequence_tokens
    # The sides' sums of gradients cross, an all-reduce of two over all network ports.
    gradient_bytes = workload.element_bytes if workload.states == "pure" else 4.0
    exchange_s = _crossing_s(gradient_bytes * count_trained(one.model, workload), one.cluster, other.cluster)
    for part in _near(_speed_share(one, other), parts):
        first = replace(workload, batch_tokens=part * unit)
        second = replace(workload, batch_tokens=workload.batch_tokens - part * unit)
        best, other_best = _fastest(replace(one, workload=first)), _fastest(replace(other, workload=second))
        if best is not None and other_best is not None:
            sides = _sides(first.batch_tokens / workload.batch_tokens, (one, best), (other, other_best))
            step_s = max(best.step_s, other_best.step_s) + exchange_s
            yield Way(kind="batch", sides=sides, step_s=step_s, exchange_s=exchange_s)


def _by_layers(one: RunSpec, other: RunSpec) -> Iterator[Way]:
    """Yields divisions of equal layers near the one by speed: a pipeline of two stages, each in its best layout.

    Both sides are counted with embedding and head, of which each has one.
    """
    if not one.model.is_divisible:
        return
    model, workload = one.transformer, one.workload
    if model.layers < 2 or model.moe_layers not in {0, model.layers} or model.windowed_layers not in {0, model.layers}:
        return
    for layers in _near(_speed_share(one, other), model.layers):
        models = (replace(model, layers=layers), replace(model, layers=model.layers - layers))
        if model.windowed_layers:
            models = (replace(models[0], window_layers=None), replace(models[1], window_layers=None))
        first, second = _fastest(replace(one, model=models[0])), _fastest(replace(other, model=models[1]))
        if first is None or second is None:
            continue
        # What flows from one side to the other at once is the larger side's micro batch over all of its ranks.
        plans = (first.parallel, second.parallel)
        flow = max(each.micro_batch_sequences * each.dp_replicate * each.dp_shard for each in plans)
        count = max(1.0, workload.batch_sequences / flow)
        # Activations go forth and gradients back, behind the work of other micro batches but for the first and last.
        sent_bytes = 2 * workload.element_bytes * workload.batch_tokens * model.width
        sent_s = _crossing_s(sent_bytes, one.cluster, other.cluster)
        slow, fast = max(first.step_s, second.step_s), min(first.step_s, second.step_s)
        parts_taken = _sides(layers / model.layers, (one, first), (other, second))
        step_s = max(slow, sent_s) + (fast + sent_s) / count
        yield Way(kind="layers", sides=parts_taken, step_s=step_s, exchange_s=sent_s)


def _sides(share: float, first: tuple[RunSpec, Ranked], second: tuple[RunSpec, Ranked]) -> tuple[Side, ...]:
    parts = ((share, first), (1 - share, second))
    return tuple(Side(cluster=run.cluster, share=part, best=best) for part, (run, best) in parts)


def _speed_share(one: RunSpec, other: RunSpec) -> float:
    """Returns the first side's share of the speed of both: by layouts that fit, else as if memory did not matter."""
    first, second = (best_layouts(each, count=1) for each in (one, other))
    speeds = [1.0 / best[0].step_s if best else 0.0 for best in (first, second)]
    return speeds[0] / sum(speeds) if sum(speeds) else 0.5


def _near(share: float, parts: int) -> list[int]:
    """Returns the numbers of ``parts`` around ``share`` of them, neither none nor all."""
    middle = round(share * parts)
    return [each for each in range(middle - NEARBY, middle + NEARBY + 1) if 0 < each < parts]


def _crossing_s(size_bytes: float, one: ClusterSpec, other: ClusterSpec) -> float:
    """Returns the seconds for bytes that each side sends to the other, at the pace of the slower side's ports."""
    rates = [0.0 if each.scale_out is None else each.devices * each.scale_out.bytes_per_s for each in (one, other)]
    return size_bytes / (OUT_EFFICIENCY * min(rates)) if min(rates) else float(np.inf)


def _verdict(ways: tuple[Way, ...]) -> str:
    """Returns the way to take in words, with the numbers that speak for it."""
    alone = [way for way in ways if way.kind == "alone"]
    both = [way for way in ways if way.kind != "alone" and np.isfinite(way.step_s)]
    if not ways:
        return "neither alone nor together: the run does not fit"
    if not alone:
        return f"{BOTH}, {both[0].name}: neither has the memory alone"
    best = alone[0]
    if not both:
        return f"use {best.name}: the other side has no part that fits"
    gain = best.step_s / both[0].step_s
    how = f"{both[0].name}: a step of {format_seconds(both[0].step_s)}, {format_seconds(best.step_s)} on {best.name}"
    if gain >= WORTH:
        return f"{BOTH}, {how}: {gain:.2f} times as fast"
    passed = f"{format_seconds(both[0].exchange_s)} of it pass between them"
    outcome = "slower" if gain < 1 else f"hardly faster ({gain:.2f} times)"
    return f"use {best.name}: both would be {outcome}, {how}; {passed}"
