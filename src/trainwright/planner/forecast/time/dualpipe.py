"""DualPipe, the pipeline of DeepSeek-V3 (arXiv 2412.19437, section 3.2.1), played out chunk by chunk.

Half of the micro batches enter at the first rank and half at the last. Rank ``r`` of ``p`` has stage ``r`` for its own
direction and stage ``p - 1 - r`` for the other; *near* is the direction whose first stages lie on its half of the
ranks, *far* the other one. Forward and backward passes of the two directions run as one chunk, in which each hides what
the other sends. The order is that of the authors' schedule (deepseek-ai/DualPipe, figure of its README).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from trainwright.planner.counts.layouts import Numbers

Pass = tuple[Literal["F", "B", "I", "W"], int]
"""Forward, whole backward, backward for inputs alone, and the oldest one's weights; with its direction, 0 or 1."""
Chunk = tuple[Pass, ...]
"""Passes that run together."""


def order(stages: int, micro_batches: int, rank: int) -> list[Chunk]:
    """Returns the chunks of ``rank`` in order, in eight steps; ``micro_batches`` counts both directions together."""
    half, outer = stages // 2, min(rank, stages - 1 - rank)
    near = int(rank >= half)
    far, inner = 1 - near, half - outer - 1
    forward: tuple[Chunk, Chunk] = ((("F", 0),), (("F", 1),))
    whole: tuple[Chunk, Chunk] = ((("B", 0),), (("B", 1),))
    inputs: tuple[Chunk, Chunk] = ((("I", 0),), (("I", 1),))
    weights: Chunk = (("W", 0),)
    pairs: tuple[Chunk, Chunk] = ((("F", 0), ("B", 1)), (("F", 1), ("B", 0)))
    chunks = [forward[near]] * (2 * inner)
    chunks += [forward[near], forward[far]] * (outer + 1)
    chunks += [inputs[far], weights, forward[far]] * inner
    steady = [pairs[near], pairs[far]] * (micro_batches // 2 - stages + outer + 1)
    if inner == 0:
        # The two ranks in the middle start before there is anything to overlap.
        steady[:1] = [forward[near], whole[far]]
    chunks += steady + [whole[far], pairs[far]] * inner
    ends = [each for _ in range(outer + 1) for each in (far, near)]
    # The second half of the last backward passes leaves its weights for later.
    chunks += [(whole if place < len(ends) - outer - 1 else inputs)[each] for place, each in enumerate(ends)]
    chunks += [weights, inputs[near]] * inner
    return chunks + [weights] * (outer + 1)


def play(alone_s: Numbers, together_s: Numbers, micro_batches: int, *, hop_s: float = 0.0) -> list[float]:
    """Returns the end of each rank.

    ``alone_s`` [3, stages] are the seconds of one micro batch's forward pass, its backward pass without weights, and
    weights; ``together_s`` [stages, stages] those of a forward pass and another stage's whole backward pass in one
    chunk. Every rank works through its order as soon as a chunk's inputs are there; a result reaches the next rank
    ``hop_s`` after it is ready. ``stages`` must be even, ``micro_batches`` too and at least twice as many.
    """
    stages = len(together_s)
    orders = [order(stages, micro_batches, rank) for rank in range(stages)]
    # Ends of forward and backward passes by direction, stage and micro batch, in the order in which they run.
    done: dict[str, list[list[list[float]]]] = {
        kind: [[[] for _ in range(stages)] for _ in range(2)] for kind in ("F", "B")
    }
    clock, place = [0.0] * stages, [0] * stages
    later: list[list[int]] = [[] for _ in range(stages)]
    left = sum(map(len, orders))
    while left:
        moved = False
        for rank, chunks in enumerate(orders):
            while place[rank] < len(chunks):
                chunk = chunks[place[rank]]
                ready = max((_ready(each, rank, stages, done, hop_s) for each in chunk), default=0.0)
                if ready == np.inf:
                    break
                clock[rank] = max(clock[rank], ready) + _seconds(chunk, rank, alone_s, together_s, later[rank])
                for kind, direction in chunk:
                    if kind != "W":
                        ends = done["F" if kind == "F" else "B"][direction]
                        ends[_stage(rank, direction, stages)].append(clock[rank])
                place[rank] += 1
                left -= 1
                moved = True
        if not moved:
            raise AssertionError("a schedule that waits for itself")
    return clock


def _stage(rank: int, direction: int, stages: int) -> int:
    return rank if direction == 0 else stages - 1 - rank


def _ready(each: Pass, rank: int, stages: int, done: dict[str, list[list[list[float]]]], hop_s: float) -> float:
    """Returns the time at which a pass's input is there; infinite while its producer has not run."""
    kind, direction = each
    if kind == "W":
        return 0.0
    stage = _stage(rank, direction, stages)
    forward, backward = done["F"][direction], done["B"][direction]
    if kind == "F":
        batch = len(forward[stage])
        before = [0.0] * (batch + 1) if stage == 0 else forward[stage - 1]
        hop = hop_s if stage else 0.0
    else:
        batch = len(backward[stage])
        last = stage == stages - 1
        before, hop = (forward[stage], 0.0) if last else (backward[stage + 1], hop_s)
    return before[batch] + hop if batch < len(before) else np.inf


def _seconds(chunk: Chunk, rank: int, alone_s: Numbers, together_s: Numbers, later: list[int]) -> float:
    """Returns the seconds of a chunk; weights that are left for later are done in turn."""
    (forward, backward, weight), stages = alone_s, len(together_s)
    if len(chunk) == 2:
        ahead, back = (_stage(rank, direction, stages) for _, direction in chunk)
        return float(together_s[ahead, back])
    kind, direction = chunk[0]
    if kind == "W":
        return float(weight[later.pop(0)])
    stage = _stage(rank, direction, stages)
    if kind == "F":
        return float(forward[stage])
    if kind == "I":
        later.append(stage)
        return float(backward[stage])
    return float(backward[stage] + weight[stage])
