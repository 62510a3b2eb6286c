"""Seconds and micro batches in flight of pipeline schedules: played out event by event, and as closed forms.

Schedules: GPipe, all forward and then all backward passes (Huang et al., 2019); 1F1B, one of each in turn (Narayanan et
al., 2019); interleaved 1F1B, ``v`` chunks of the model on each rank (Narayanan et al., 2021, arXiv 2104.04473); and
ZB-H1, which splits the backward pass in a part for the inputs, that other stages wait for, and a part for the weights,
that fills idle time (Qi et al., 2023, arXiv 2401.10241).

``simulate`` plays one layout with any times. ``makespan_s`` and ``in_flight`` are arithmetic over arrays of layouts
whose first and last stage may be longer (embedding, head).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainwright.core.errors import RecipeError
from trainwright.spec.workload import Schedule

Numbers = NDArray[np.float64]
Values = float | Numbers

_FORWARD, _BACKWARD, _WEIGHT = range(3)
_Work = tuple[int, int, int]  # what, which chunk of the rank, which micro batch


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """Seconds of one micro batch on one stage: forward, gradient of inputs, gradient of weights."""

    forward_s: Values = 0.0
    backward_s: Values = 0.0
    weight_s: Values = 0.0

    @property
    def total_s(self) -> Values:
        """Seconds of the stage's work on one micro batch."""
        return self.forward_s + self.backward_s + self.weight_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """A schedule played out.

    ``busy_s`` and ``in_flight`` are by stage; the latter is the peak of micro batches whose activations are held, in
    whole stages (a chunk is a part of one).
    """

    seconds: float
    busy_s: tuple[float, ...]
    in_flight: tuple[float, ...]

    @property
    def idle_share(self) -> float:
        """Share of all stages' time in which nothing runs."""
        return 1.0 - sum(self.busy_s) / (len(self.busy_s) * self.seconds)

    @property
    def bubble(self) -> float:
        """Idle over busy time of the busiest stage: the papers' bubble fraction."""
        return self.seconds / max(self.busy_s) - 1.0


def simulate(
    schedule: Schedule,
    *,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    weight_s: ArrayLike,
    micro_batches: int,
    hop_s: float = 0.0,
) -> Played:
    """Plays ``schedule``; times are of shape ``[stages]`` or ``[stages, chunks]``, for one micro batch each.

    A result reaches the next stage ``hop_s`` after it is ready, while both stages go on working.

    Raises:
        RecipeError: the schedule does not exist for these numbers.
    """
    times = np.stack([np.atleast_1d(np.asarray(t, dtype=np.float64)) for t in (forward_s, backward_s, weight_s)])
    times = times.reshape(3, times.shape[1], -1)
    stages, chunks = times.shape[1:]
    problem = schedule_problem(schedule, stages=stages, chunks=chunks, micro_batches=micro_batches)
    if problem:
        raise RecipeError(problem, where="schedule", seen=schedule)
    orders = [_order(schedule, stages, chunks, micro_batches, stage) for stage in range(stages)]
    if schedule != "zero_bubble":
        times[_BACKWARD] += times[_WEIGHT]
    ends = _play(orders, times, micro_batches, hop_s if stages > 1 else 0.0)
    busy = [sum(times[what, stage, chunk] for what, chunk, _ in order) for stage, order in enumerate(orders)]
    closing = _WEIGHT if schedule == "zero_bubble" else _BACKWARD
    return Played(
        seconds=float(max(ends)),
        busy_s=tuple(float(s) for s in busy),
        in_flight=tuple(_peak(order, closing) / chunks for order in orders),
    )


def schedule_problem(schedule: Schedule, *, stages: int, chunks: int, micro_batches: int) -> str:
    """Why this schedule cannot run so many micro batches; empty where it can."""
    if schedule != "interleaved" and chunks > 1:
        return f"only the interleaved schedule has several chunks on a stage, seen {chunks}"
    if schedule == "interleaved" and micro_batches % stages:
        return f"interleaving needs a multiple of {stages} stages as micro batches, seen {micro_batches}"
    return ""


def makespan_s(
    schedule: Schedule,
    *,
    stages: Values,
    micro_batches: Values,
    stage: Pass,
    first: Pass | None = None,
    last: Pass | None = None,
    chunks: Values = 1.0,
    hop_s: Values = 0.0,
) -> Numbers:
    """Seconds from the first forward to the last backward pass; ``first`` and ``last`` come on top of those stages.

    Exact for equal stages: ``(m + p - 1) w`` for GPipe and 1F1B, ``m w + (p - 1) w / v`` interleaved (Narayanan et al.,
    2021, section 2.2), ``m w + (p - 1) (f + b - w_g)`` for ZB-H1 with ``m >= p`` and ``w_g <= b`` (Qi et al., 2023,
    table 2); plus the hops that no work hides. Longer ends leave GPipe exact, 1F1B within 1 %, and the other two, whose
    order they disturb, within some 5 % where ``m >= 4 p``.
    """
    p, m = np.asarray(stages, dtype=np.float64), np.asarray(micro_batches, dtype=np.float64)
    first, last = first or Pass(), last or Pass()
    if schedule == "gpipe":
        waits = (stage.backward_s + stage.weight_s, first.backward_s + first.weight_s, last.backward_s + last.weight_s)
        forward = _flow_shop_s(p, m, stage.forward_s, first.forward_s, last.forward_s)
        return np.asarray(forward + _flow_shop_s(p, m, *waits) + 2 * (p - 1) * hop_s)
    if schedule == "1f1b":
        return _one_forward_one_backward_s(p, m, stage=stage, first=first, last=last, hop_s=hop_s)
    slowest = _slowest(p, stage.total_s, first.total_s, last.total_s)
    others = p * stage.total_s + first.total_s + last.total_s - slowest
    if schedule == "interleaved":
        hops = np.where(p > 1, 2 * (p * chunks - 1), 0.0)
        return np.asarray(m * slowest + others / chunks + hops * hop_s)
    # Nobody waits for gradients of weights, and min(m, p) - 1 of them fill the wait for gradients of inputs.
    shorter = np.where(first.total_s > last.total_s, last.weight_s, first.weight_s)
    filled = np.minimum(m - 1, p - 1) * np.minimum(stage.weight_s, stage.backward_s)
    waits = others - (p - 1) * stage.weight_s - shorter - filled
    return np.asarray(m * slowest + np.where(p > 1, waits + np.minimum(_hops(p, m), 4 * (p - 1)) * hop_s, 0.0))


def in_flight(
    schedule: Schedule, *, stages: Values, micro_batches: Values, stage: Values = 0.0, chunks: Values = 1.0
) -> Numbers:
    """Peak of micro batches whose activations ``stage`` (0 is first) holds, in whole stages' activations.

    GPipe holds all; 1F1B one for each stage still to come (Narayanan et al., 2021); interleaving holds
    ``1 + (p - 1) / (p v)`` times that on the first stage (Korthikanti et al., 2022, section 4.2.3); ZB-H1 holds on
    every stage what 1F1B holds on the first.
    """
    p, m, s = (np.asarray(value, dtype=np.float64) for value in (stages, micro_batches, stage))
    if schedule == "gpipe":
        return m + 0 * s * p
    if schedule == "1f1b":
        return np.asarray(np.minimum(p - s, m))
    if schedule == "zero_bubble":
        return np.asarray(np.minimum(p, m) + 0 * s)
    return np.asarray(np.minimum(2 * (p - s - 1) + (chunks - 1) * p + 1, m * chunks) / chunks)


def _slowest(p: Numbers, stage: Values, first: Values, last: Values) -> Numbers:
    ends = np.where(p > 1, np.maximum(first, last), first + last)
    return np.asarray(stage + np.where(p > 2, np.maximum(ends, 0.0), ends))


def _flow_shop_s(p: Numbers, m: Numbers, stage: Values, first: Values, last: Values) -> Numbers:
    """All micro batches through all stages one way: the pipe's length once, and the slowest stage for each other."""
    return np.asarray(p * stage + first + last + (m - 1) * _slowest(p, stage, first, last))


def _hops(p: Numbers, m: Numbers) -> Numbers:
    """Hops on the critical path of 1F1B with equal stages: 2 (p - 1) of every p micro batches cannot be hidden."""
    return np.asarray(2 * ((p - 1) + (m - 1) - np.floor((m + p - 2) / p)))


def _one_forward_one_backward_s(
    p: Numbers, m: Numbers, *, stage: Pass, first: Pass, last: Pass, hop_s: Values
) -> Numbers:
    """The longest of what each stage needs: work before it, its own, and what it waits for those behind it.

    Stage ``j`` waits for its first micro batch's way to the end and back, less the ``p - j - 1`` forward passes that it
    does meanwhile; and likewise for its last one. Stages between the ends are equal, so that the extremes are at
    the first two and the last two.
    """
    every = p * stage.total_s + first.total_s + last.total_s
    longest = (m + p - 1) * every / p + _hops(p, m) * hop_s
    for j in (0 * p, np.minimum(1.0, p - 1), np.maximum(p - 2, 0.0), p - 1):
        starts, ends = np.where(j == 0, 1.0, 0.0), np.where(j == p - 1, 1.0, 0.0)
        own = stage.total_s + starts * first.total_s + ends * last.total_s
        forward = stage.forward_s + starts * first.forward_s + ends * last.forward_s
        before = j * stage.total_s + (1 - starts) * first.total_s
        behind = np.maximum(every - own - before, 0.0) + 2 * (p - 1 - j) * hop_s
        warm = p - j - 1
        filling = np.maximum(behind - warm * forward, 0.0)
        draining = np.maximum(behind - warm * (own - forward), 0.0)
        waits = np.minimum(behind, filling + draining)
        longest = np.maximum(longest, before + 2 * j * hop_s + m * own + waits)
    return np.asarray(longest)


def _order(schedule: Schedule, stages: int, chunks: int, micro_batches: int, stage: int) -> list[_Work]:
    """What ``stage`` does, in its order."""
    if schedule == "gpipe":
        batches = range(micro_batches)
        return [(_FORWARD, 0, i) for i in batches] + [(_BACKWARD, 0, i) for i in batches]
    work = chunks * micro_batches
    warm = stages - stage - 1
    if schedule == "interleaved":
        warm = 2 * warm + (chunks - 1) * stages
    warm = min(warm, work)
    # Each chunk sees `stages` micro batches before the next chunk does.
    round_ = stages * chunks if schedule == "interleaved" else work
    size = stages if schedule == "interleaved" else work
    places = [(k % round_ // size, k // round_ * size + k % size) for k in range(work)]
    order: list[_Work] = [(_FORWARD, *place) for place in places[:warm]]
    for k, (chunk, batch) in enumerate(places):
        if k + warm < work:
            order.append((_FORWARD, *places[k + warm]))
        order.append((_BACKWARD, chunks - 1 - chunk, batch))
        if schedule == "zero_bubble" and batch >= stage:
            # Later by one micro batch from stage to stage, so that each holds as many as the first.
            order.append((_WEIGHT, 0, batch - stage))
    if schedule == "zero_bubble":
        order += [(_WEIGHT, 0, i) for i in range(max(micro_batches - stage, 0), micro_batches)]
    return order


def _play(orders: list[list[_Work]], times: Numbers, micro_batches: int, hop_s: float) -> list[float]:
    """When each stage ends; every stage works through its order as soon as its inputs are there."""
    stages, chunks = times.shape[1:]
    virtual = stages * chunks
    seconds = times.transpose(0, 2, 1).reshape(3, virtual).tolist()  # [what][chunk * stages + stage]
    missing = -math.inf
    done = [[[missing] * micro_batches for _ in range(virtual)] for _ in range(2)]
    forward, backward = done
    clock = [0.0] * stages
    place = [0] * stages
    left = sum(len(order) for order in orders)
    while left:
        for stage, order in enumerate(orders):
            now = clock[stage]
            start = at = place[stage]
            while at < len(order):
                what, chunk, batch = order[at]
                part = chunk * stages + stage
                if what == _FORWARD:
                    ready = forward[part - 1][batch] if part else -hop_s
                elif what == _BACKWARD:
                    ready = backward[part + 1][batch] if part + 1 < virtual else forward[part][batch] - hop_s
                else:
                    ready = -hop_s  # its backward pass came before it in the order
                if ready == missing:
                    break
                now = max(now, ready + hop_s) + seconds[what][part]
                if what != _WEIGHT:
                    done[what][part][batch] = now
                at += 1
            clock[stage], place[stage] = now, at
            left -= at - start
    return clock


def _peak(order: list[_Work], closing: int) -> int:
    """The most forward passes that are not yet closed."""
    held = peak = 0
    for what, _, _ in order:
        held += (what == _FORWARD) - (what == closing)
        peak = max(peak, held)
    return peak
