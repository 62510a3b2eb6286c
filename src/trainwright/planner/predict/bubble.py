"""What the pipeline of one layout really waits: its schedule played out with each stage's own layers and head.

``step.combine`` prices thousands of layouts as if all stages were equal. Of the one that is chosen, the last stage has
the head and the loss, and where layers do not divide some stages have one less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainwright.planner.predict.exchange import Exchange
from trainwright.planner.predict.layouts import SCHEDULES, Layouts, Numbers
from trainwright.planner.predict.pipeline import schedule_problem, simulate
from trainwright.planner.predict.step import Passes, Rates, passes
from trainwright.planner.predict.work import Work
from trainwright.spec.workload import Schedule

ROUNDS = 4
"""A step of more micro batches than so many times the stages repeats itself every ``stages`` micro batches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """One layout's pipeline: seconds of each chunk [stages, chunks] for one micro batch, and of one hop."""

    schedule: Schedule
    forward_s: Numbers
    backward_s: Numbers
    weight_s: Numbers
    hop_s: float
    together_s: Numbers | None = None
    """A forward and a backward pass in one chunk [stages, stages], for DualPipe."""

    def seconds(self, micro_batches: int) -> float:
        """Seconds from the first forward to the last backward pass.

        Many micro batches are not played out: once the pipeline is full, every round of as many micro batches as there
        are stages takes as long as the one before.
        """
        stages = len(self.forward_s)
        if micro_batches <= ROUNDS * stages:
            return self._played(micro_batches)
        fewer = (ROUNDS - 1) * stages + micro_batches % stages
        last = self._played(fewer)
        return last + (last - self._played(fewer - stages)) * (micro_batches - fewer) / stages

    def _played(self, micro_batches: int) -> float:
        return simulate(
            self.schedule, forward_s=self.forward_s, backward_s=self.backward_s, weight_s=self.weight_s,
            micro_batches=micro_batches, hop_s=self.hop_s, together_s=self.together_s,
        ).seconds  # fmt: skip


def layers_of_chunks(layers: int, stages: int, chunks: int) -> Numbers:
    """Layers of each chunk of each stage [stages, chunks]; chunks follow one another over all stages in turn.

    Where they do not divide, embedding and head stand for a layer each if that makes them (``work.slowest_layers``);
    else the first chunks have one more.
    """
    parts = stages * chunks
    if layers % parts and (layers + 2) % parts == 0:
        held = np.full(parts, (layers + 2) // parts)
        held[0] -= 1
        held[-1] -= 1
    else:
        held = np.full(parts, layers // parts)
        held[: layers % parts] += 1
    return held.reshape(chunks, stages).T.astype(np.float64)


def idle_s(layers: int, work: Work, sent: Exchange, shape: Layouts, rate: Rates) -> float | None:
    """Seconds that a step of the one layout takes beyond its slowest stage's own work, as ``combine`` counts it.

    Scaled by what published runs wait of their schedule's bubble. None where there is no pipeline, or no such schedule.
    """
    stages, chunks, micro_batches = int(shape.pp[0]), int(shape.virtual_stages[0]), int(shape.micro_batches[0])
    schedule = SCHEDULES[int(shape.schedule[0])]
    if stages == 1 or schedule_problem(schedule, stages=stages, chunks=chunks, micro_batches=micro_batches):
        return None
    slowest = passes(work, sent, shape, rate)
    zero = np.zeros_like(work.head_s)
    bare = replace(work, head_s=zero, loss_s=zero)
    blocks = passes(bare, sent, shape, rate)
    # All of the head is on the last stage, whatever the slowest rank has of it.
    alone = replace(shape, schedule=np.full_like(shape.schedule, SCHEDULES.index("1f1b")))
    with_head, without = (
        passes(each, sent, alone, rate) for each in (replace(work, lighter=0.0 * zero, lighter_ends=0.0 * zero), bare)
    )
    head = [all_ - own for all_, own in zip(_split(with_head, without), _split(without, without), strict=True)]
    share = layers_of_chunks(layers, stages, chunks) / work.layers[0]
    times = [own * share for own in _split(blocks, blocks)]
    for time, more in zip(times, head, strict=True):
        time[-1, -1] += more
    forward, backward, weight = times
    pipeline = Pipeline(
        schedule=schedule, forward_s=forward, backward_s=backward, weight_s=weight,
        hop_s=float(slowest.sends[0]) / (2 * chunks),
        together_s=_together(blocks, share[:, 0], head) if schedule == "dualpipe" else None,
    )  # fmt: skip
    waited = pipeline.seconds(micro_batches) - micro_batches * float(slowest.total[0])
    return max(0.0, waited) * float(np.max(rate.bubble))


def _together(blocks: Passes, share: Numbers, head: list[float]) -> Numbers:
    """Seconds of a forward pass of one stage and a backward pass of another in one chunk [stages, stages]."""
    forward = float((blocks.forward / (blocks.forward + blocks.backward))[0]) * share * float(blocks.total[0])
    backward = share * float(blocks.total[0]) - forward
    forward[-1] += head[0]
    backward[-1] += head[1] + head[2]
    return np.asarray(forward[:, None] + backward)


def _split(of: Passes, like: Passes) -> tuple[float, float, float]:
    """Seconds of the forward pass, of the inputs' gradients and of the weights', waits between kernels included.

    Waits are divided as the kernels of ``like`` are; what is sent to other stages is not among them. Alone, a pass of a
    bidirectional pipeline waits for what is hidden otherwise.
    """
    waits = float((of.host + of.exposed - of.sends + of.hidden)[0])
    forward = float((like.forward / (like.forward + like.backward))[0])
    weight = float(of.weight[0])
    return (
        float(of.forward[0]) + forward * waits,
        float(of.backward[0]) - weight + (1 - forward) * waits,
        weight,
    )
