"""Seconds of pipeline schedules, played out event by event.

Schedules: GPipe, all forward and then all backward passes (Huang et al., 2019); 1F1B, one of each in turn (Narayanan et
al., 2019); interleaved 1F1B, ``v`` chunks of the model on each rank (Narayanan et al., 2021, arXiv 2104.04473); and
ZB-H1, which splits the backward pass in a part for the inputs, that other stages wait for, and a part for the weights,
that fills idle time (Qi et al., 2023, arXiv 2401.10241); and DualPipe, which runs micro batches in both directions
(``time.dualpipe``).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from trainwright.core.errors import RecipeError
from trainwright.planner.counts.layouts import Numbers
from trainwright.planner.forecast.time import dualpipe
from trainwright.spec.workload import Schedule

FORWARD, BACKWARD, WEIGHT = range(3)
Work = tuple[int, int, int]  # what, which chunk of the rank, which micro batch


def simulate(
    schedule: Schedule,
    *,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    weight_s: ArrayLike,
    micro_batches: int,
    hop_s: float = 0.0,
    together_s: Numbers | None = None,
) -> float:
    """Returns the seconds from the first forward to the last backward pass.

    Times are of one micro batch, [stages] or [stages, chunks]. A result reaches the next stage ``hop_s`` after it is
    ready, while both stages go on working. ``together_s`` is for DualPipe: a forward and a backward pass in one chunk
    [stages, stages]; by default their sum.

    Raises:
        RecipeError: the schedule does not exist for these numbers.
    """
    times = np.stack([np.atleast_1d(np.asarray(t, dtype=np.float64)) for t in (forward_s, backward_s, weight_s)])
    times = times.reshape(3, times.shape[1], -1)
    stages, chunks = times.shape[1:]
    problem = schedule_problem(schedule, stages=stages, chunks=chunks, micro_batches=micro_batches)
    if problem:
        raise RecipeError(problem, where="schedule", seen=schedule)
    if schedule == "dualpipe":
        forward, backward, weight = times[:, :, 0]
        pairs = forward[:, None] + backward + weight if together_s is None else together_s
        return max(dualpipe.play(times[:, :, 0], pairs, micro_batches, hop_s=hop_s))
    orders = [order_of(schedule, stages, chunks, micro_batches, stage) for stage in range(stages)]
    if schedule != "zero_bubble":
        times[BACKWARD] += times[WEIGHT]
    return max(_play(orders, times, micro_batches, hop_s if stages > 1 else 0.0))


def schedule_problem(schedule: Schedule, *, stages: int, chunks: int, micro_batches: int) -> str:
    """Returns the reason why the schedule cannot run so many micro batches; empty where it can."""
    if schedule != "interleaved" and chunks > 1:
        return f"only the interleaved schedule has several chunks on a stage, seen {chunks}"
    if schedule == "interleaved" and micro_batches % stages:
        return f"interleaving needs a multiple of {stages} stages as micro batches, seen {micro_batches}"
    if schedule == "dualpipe" and stages % 2:
        return f"DualPipe needs an even number of stages, seen {stages}"
    if schedule == "dualpipe" and (micro_batches % 2 or micro_batches < 2 * stages):
        return f"DualPipe needs an even number of micro batches, at least {2 * stages}, seen {micro_batches}"
    return ""


def order_of(schedule: Schedule, stages: int, chunks: int, micro_batches: int, stage: int) -> list[Work]:
    """Returns the work of ``stage`` in its order."""
    if schedule == "gpipe":
        batches = range(micro_batches)
        return [(FORWARD, 0, i) for i in batches] + [(BACKWARD, 0, i) for i in batches]
    work = chunks * micro_batches
    warm = stages - stage - 1
    if schedule == "interleaved":
        warm = 2 * warm + (chunks - 1) * stages
    warm = min(warm, work)
    # Each chunk sees `stages` micro batches before the next chunk does.
    round_ = stages * chunks if schedule == "interleaved" else work
    size = stages if schedule == "interleaved" else work
    places = [(k % round_ // size, k // round_ * size + k % size) for k in range(work)]
    order: list[Work] = [(FORWARD, *place) for place in places[:warm]]
    for k, (chunk, batch) in enumerate(places):
        if k + warm < work:
            order.append((FORWARD, *places[k + warm]))
        order.append((BACKWARD, chunks - 1 - chunk, batch))
        if schedule == "zero_bubble" and batch >= stage:
            # Later by one micro batch from stage to stage, so that each holds as many as the first.
            order.append((WEIGHT, 0, batch - stage))
    if schedule == "zero_bubble":
        order += [(WEIGHT, 0, i) for i in range(max(micro_batches - stage, 0), micro_batches)]
    return order


def _play(orders: list[list[Work]], times: Numbers, micro_batches: int, hop_s: float) -> list[float]:
    """Returns each stage's end; every stage works through its order as soon as its inputs are there."""
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
                if what == FORWARD:
                    ready = forward[part - 1][batch] if part else -hop_s
                elif what == BACKWARD:
                    ready = backward[part + 1][batch] if part + 1 < virtual else forward[part][batch] - hop_s
                else:
                    ready = -hop_s  # its backward pass came before it in the order
                if ready == missing:
                    break
                now = max(now, ready + hop_s) + seconds[what][part]
                if what != WEIGHT:
                    done[what][part][batch] = now
                at += 1
            clock[stage], place[stage] = now, at
            left -= at - start
    return clock
