"""What a pipeline waits: in closed form as if all stages were equal, for thousands of layouts; and played out, for one.

Of the layout that is chosen, the last stage has the head and the loss, and where layers do not divide some stages have
one less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainwright.planner.counts.kernels import Kernels, RateSource
from trainwright.planner.counts.layouts import SCHEDULES, Layouts, Numbers
from trainwright.planner.counts.ranks import slowest_layers
from trainwright.planner.forecast.communication.exchange import Exchange
from trainwright.planner.forecast.padded import kernels_of
from trainwright.planner.forecast.time.passes import Passes, passes
from trainwright.planner.forecast.time.pipeline import schedule_problem, simulate
from trainwright.spec.run import RunSpec

ROUNDS = 4
"""A step of more micro batches than so many times the stages repeats itself every ``stages`` micro batches."""


def repeated_s(played_s: Callable[[int], float], stages: int, micro_batches: int) -> float:
    """Returns the seconds of many micro batches, of which ``played_s`` plays only few.

    Once the pipeline is full, every round of as many micro batches as there are stages takes as long as the one before.
    """
    if micro_batches <= ROUNDS * stages:
        return played_s(micro_batches)
    fewer = (ROUNDS - 1) * stages + micro_batches % stages
    last = played_s(fewer)
    return last + (last - played_s(fewer - stages)) * (micro_batches - fewer) / stages


def layers_of_chunks(layers: int, stages: int, chunks: int) -> Numbers:
    """Returns the layers of each chunk [stages, chunks]; chunks follow one another over all stages in turn.

    Where they do not divide, embedding and head stand for a layer each if that makes them (``work.slowest_layers``);
    else the first chunks have one more.
    """
    parts = stages * chunks
    if layers % parts and (layers + 2) % parts == 0:
        counts = np.full(parts, (layers + 2) // parts)
        counts[0] -= 1
        counts[-1] -= 1
    else:
        counts = np.full(parts, layers // parts)
        counts[: layers % parts] += 1
    return counts.reshape(chunks, stages).T.astype(np.float64)


def closed_form_s(layouts: Layouts, each: Passes) -> Numbers:
    """Returns the seconds in which a rank of equal ones has nothing to do.

    Passes of one direction: ``(p - 1) / v`` micro batches, but for what weights' gradients fill. DualPipe:
    ``(p / 2 - 1) (F&B + B - 3 W)`` (arXiv 2412.19437, table 2), F&B a forward and a backward pass together and B a
    backward pass alone; and before and after all are paired, ``p`` micro batches whose sending nothing hides.
    """
    one_way = (each.total - _filled(layouts, each.weight)) * (layouts.pp - 1) / layouts.virtual_stages
    backward = (each.total + each.hidden) * each.backward / np.maximum(each.forward + each.backward, 1e-30)
    idle = np.maximum(0.0, (layouts.pp / 2 - 1) * (each.total + backward - 3 * each.weight))
    both_ways = idle + np.minimum(layouts.pp, layouts.micro_batches) * each.hidden
    return np.where(layouts.has("schedule", "dualpipe"), both_ways, one_way)


def _filled(layouts: Layouts, weight_s: Numbers) -> Numbers:
    """Returns the part of the wait for another stage that zero-bubble schedules fill with gradients of weights.

    Nobody waits for those themselves, and others of them are made meanwhile (Qi et al., 2023, arXiv 2401.10241, table
    2: ZB-H1; see ``pipeline.simulate``).
    """
    waits = np.maximum(layouts.pp - 1, 1.0)
    others = np.minimum(layouts.micro_batches - 1, waits) / waits
    return np.where(layouts.has("schedule", "zero_bubble"), (1 + others) * weight_s, 0.0)


def idle_s(run: RunSpec, source: RateSource, kernels: Kernels, sent: Exchange, layouts: Layouts) -> float | None:
    """Returns the seconds that a step of one layout takes beyond its slowest stage's work, as ``combine`` counts it.

    Scaled by what published runs wait of their schedule's bubble. None where there is no pipeline, or no such schedule.
    """
    stages, chunks = int(layouts.pp[0]), int(layouts.virtual_stages[0])
    micro_batches, schedule = int(layouts.micro_batches[0]), SCHEDULES[int(layouts.schedule[0])]
    if stages == 1 or schedule_problem(schedule, stages=stages, chunks=chunks, micro_batches=micro_batches):
        return None
    model, exposure = run.transformer, source.exposure(run)
    slowest = passes(kernels, sent, layouts, exposure)
    blocks = passes(_without_head(kernels), sent, layouts, exposure)
    # All of the head is on the last stage, whatever the slowest rank has of it.
    one_way = replace(layouts, schedule=np.full_like(layouts.schedule, SCHEDULES.index("1f1b")))
    alone = replace(kernels_of(source, run, one_way), lighter=0.0, lighter_ends=0.0)
    with_head, headless = (passes(each, sent, one_way, exposure) for each in (alone, _without_head(alone)))
    head = [all_ - rest for all_, rest in zip(_split(with_head, headless), _split(headless, headless), strict=True)]
    share = layers_of_chunks(model.blocks, stages, chunks) / slowest_layers(model, layouts)[0]
    times = [each * share for each in _split(blocks, blocks)]
    for time, more in zip(times, head, strict=True):
        time[-1, -1] += more
    passes_s = dict(zip(("forward_s", "backward_s", "weight_s"), times, strict=True))
    hop_s = float(slowest.sends[0]) / (2 * chunks)
    together_s = _together(blocks, share[:, 0], head) if schedule == "dualpipe" else None

    def played_s(count: int) -> float:
        return simulate(schedule, **passes_s, micro_batches=count, hop_s=hop_s, together_s=together_s)

    waited = repeated_s(played_s, stages, micro_batches) - micro_batches * float(slowest.total[0])
    return max(0.0, waited) * float(np.max(exposure.bubble))


def _without_head(kernels: Kernels) -> Kernels:
    zero = np.zeros_like(kernels.head)
    return replace(kernels, head=zero, head_backward=zero)


def _together(blocks: Passes, share: Numbers, head: list[float]) -> Numbers:
    """Returns the seconds of one stage's forward and another's backward pass in one chunk [stages, stages]."""
    forward = float((blocks.forward / (blocks.forward + blocks.backward))[0]) * share * float(blocks.total[0])
    backward = share * float(blocks.total[0]) - forward
    forward[-1] += head[0]
    backward[-1] += head[1] + head[2]
    return np.asarray(forward[:, None] + backward)


def _split(of: Passes, like: Passes) -> tuple[float, float, float]:
    """Returns the seconds of the forward pass, of inputs' and of weights' gradients, with waits between kernels.

    Waits are divided as the kernels of ``like`` are; what is sent to other stages is not among them. Alone, a pass of a
    bidirectional pipeline waits for what is hidden otherwise.
    """
    waits = float((of.host + of.exposed - of.sends + of.hidden)[0])
    forward = float((like.forward / (like.forward + like.backward))[0])
    weight = float(of.weight[0])
    return (float(of.forward[0]) + forward * waits, float(of.backward[0]) - weight + (1 - forward) * waits, weight)
