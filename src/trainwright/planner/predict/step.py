"""Seconds of one training step, phase by phase: counted work over what software makes of the device.

``predict.work`` and ``predict.exchange`` say what there is to do at datasheet rates, ``Rates`` how much of them is
reached, and ``combine`` puts them together. Every field may be a number or an array [L].

Sums that stand for "the longer of the two" are fourth-power means: work that overlaps perfectly when one side is much
longer costs a little of both when they are equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from trainwright.hardware.efficiency import DEFAULT, generation
from trainwright.planner.predict.exchange import Exchange, on_own_links
from trainwright.planner.predict.layouts import RECOMPUTES, SCHEDULES, Layouts, Numbers
from trainwright.planner.predict.work import Work
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import ClusterSpec
from trainwright.spec.efficiency import Efficiency
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack, StackTime
from trainwright.spec.workload import Workload

Value = float | Numbers
SIXTEEN_BIT = ("bf16", "fp16")
FLASH_GENERATIONS = ("ampere", "ampere-rtx", "ada", "hopper", "blackwell")
"""Those whose fused attention is one of ``spec.stack.Flash``."""
ATTENTION_BACKWARD = 2.5
"""Fused attention's backward pass makes five products for the forward pass's two (Dao, 2023, section 3.1.2)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rates:
    """What one stack reaches on one device for one workload; see ``Efficiency`` and ``StackTime`` for each."""

    compute: Value
    products: Value
    head: Value
    attention: Value
    traffic: Value
    loss: Value
    ramp: Value
    launch_s: Value
    link: Value
    bandwidth: Value
    tiles: Value
    unaligned: Value
    operands: Value
    scores: Value
    encoder: Value
    casts: Value
    expert_kernels: Value
    selective: Value
    tensor: Value
    context: Value
    expert: Value
    sharded: Value
    gradients: Value
    bus_sharing: Value
    update: Value
    bubble: Value


def tuned_key(device_generation: str, precision: str) -> str:
    """The name under which a stack's tuning for a generation and a format stands."""
    return f"{device_generation}-{'16' if precision in SIXTEEN_BIT else precision}"


def flash_key(device_generation: str, stack: Stack) -> str:
    """The name under which fused attention's share of a rate stands: by kernel too where there are several."""
    return f"{device_generation}-{stack.flash}" if device_generation in FLASH_GENERATIONS else device_generation


def ingredients(
    model: ModelSpec | ConvNetSpec, workload: Workload, cluster: ClusterSpec, stack: Stack
) -> dict[str, tuple[str, ...]]:
    """Each field of ``Rates`` as the product of named numbers: of ``Efficiency``, or of the stack (``stack.x``)."""
    kind = generation(cluster.device)
    device = (f"products.{kind}", f"devices.{cluster.device.name}")
    adapter = workload.adapter
    bus = "peer" if cluster.device.peer_to_peer else "staged"
    experts = isinstance(model, ModelSpec) and model.experts is not None
    named = {
        "compute": ("stack.compute", f"stack.tuned.{tuned_key(kind, workload.precision)}",
                    *((f"adapters.{adapter.method}",) if adapter else ())),
        "products": (*device, f"precisions.{workload.precision}"),
        "head": device,
        "attention": (*device, f"attention.{flash_key(kind, stack)}", "stack.attention")
                     if workload.fused_attention else device,
        "tensor": ("tensor", "stack.tensor"),
        "sharded": ("sharded", "stack.sharded"),
        "traffic": (f"traffic.{stack.memory.kernels}", "stack.traffic", *(("expert_traffic",) if experts else ())),
        "loss": ("loss", *(("fused_loss",) if workload.fused_loss else ())),
        "launch_s": ("launch_s", "stack.launch"),
        "link": () if on_own_links(cluster) else (f"bus.{bus}",), "bus_sharing": (f"bus_sharing.{bus}",),
    }  # fmt: skip
    alone = (field.name for field in fields(Rates) if field.name not in named)
    return named | {name: (name,) for name in alone}


def rates(
    model: ModelSpec | ConvNetSpec, workload: Workload, cluster: ClusterSpec, stack: Stack, general: Efficiency
) -> Rates:
    """The rates that ``combine`` needs, from the catalogue's numbers."""
    return Rates(
        **{
            name: math.prod(number(part, stack, general) for part in parts)
            for name, parts in ingredients(model, workload, cluster, stack).items()
        }
    )


def number(name: str, stack: Stack, general: Efficiency) -> float:
    """The number of that name; where a table lacks an entry its ``default``, and 1 where there is none."""
    owner: StackTime | Efficiency = general
    if name.startswith("stack."):
        owner, name = stack.time, name.removeprefix("stack.")
    table, _, entry = name.partition(".")
    value: float | Mapping[str, float] = getattr(owner, table)
    return value.get(entry, value.get(DEFAULT, 1.0)) if isinstance(value, Mapping) else value


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTable:
    """Arrays [L] of seconds of one step; they sum to ``total_s``.

    ``forward`` and ``backward`` are kernels alone, recomputation counting as backward; ``communicate`` is what is
    exposed; ``host`` is waiting for the host to launch kernels, ``idle`` the pipeline's bubble.
    """

    forward: Numbers
    backward: Numbers
    communicate: Numbers
    update: Numbers
    host: Numbers
    idle: Numbers

    @property
    def total_s(self) -> Numbers:
        """Seconds of the step."""
        return self.forward + self.backward + self.communicate + self.update + self.host + self.idle


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Passes:
    """Arrays [L] of seconds of one micro batch on one rank.

    ``forward`` and ``backward`` are kernels, recomputation and casts counting as backward, and ``weight`` is that part
    of the latter which makes gradients of weights; ``host`` is waiting for launches, ``exposed`` communication that
    nothing hides, ``sends`` that part of it which goes to another pipeline stage and back. ``hidden`` is what a
    bidirectional pipeline does not wait for, because it computes the other direction's micro batch meanwhile.
    """

    forward: Numbers
    backward: Numbers
    weight: Numbers
    host: Numbers
    exposed: Numbers
    sends: Numbers
    hidden: Numbers

    @property
    def total(self) -> Numbers:
        """All that a rank does for one micro batch."""
        return self.forward + self.backward + self.host + self.exposed


def passes(work: Work, sent: Exchange, shape: Layouts, rate: Rates) -> Passes:
    """Seconds of one micro batch from counted work and reached rates.

    The slowest rank has the head, unless it has so many fewer blocks that it is faster than the others all the same. In
    a bidirectional pipeline a rank has first and last stage, or two between, for half of the micro batches each;
    forward and backward passes of the two run together, so that what one sends the other hides (DualPipe: arXiv
    2412.19437, section 3.2.1), on the processors that sending leaves it.
    """
    both = shape.schedule == SCHEDULES.index("dualpipe")
    left = np.where(both, 1 - sent.occupied, 1.0)
    aligned = work.products_s + (1 / rate.unaligned - 1) * work.unaligned_s
    products = aligned / (rate.products * work.busy**rate.tiles * left) + rate.operands * work.operands_s
    attention = (work.attention_s + rate.ramp * work.short_s) / (rate.attention * left)
    between = (
        rate.traffic * work.traffic_s + rate.scores * work.scores_s + rate.encoder * work.encoder_s
    ) / rate.bandwidth
    blocks = products + attention + between
    head, loss = work.head_s / rate.head, rate.loss * work.loss_s
    ends = np.where(both, 0.5, 1.0)
    fewer = np.where(both, work.lighter_ends, work.lighter)
    returned = work.backward_products * products + ATTENTION_BACKWARD * attention + 2 * between
    forward = blocks + np.maximum(0.0, ends * (head + loss / 2) - fewer * blocks)
    backward = returned + np.maximum(0.0, ends * (work.backward_products * head + loss / 2) - fewer * returned)
    full = shape.recompute == RECOMPUTES.index("full")
    selective = shape.recompute == RECOMPUTES.index("selective")
    again = np.where(full, blocks, np.where(selective, rate.selective * blocks, 0.0))
    casts = rate.casts * work.casts_s / rate.bandwidth
    kernels = forward + backward + again + casts
    host = rate.launch_s * (work.kernels + rate.expert_kernels * work.expert_layers) * (3 + full)
    busy = longer(kernels, host)
    link = rate.link * np.exp(rate.bus_sharing * sent.bus)
    parallel = rate.tensor * sent.tensor_s + rate.context * sent.context_s
    parallel = parallel + np.where(both, 0.0, rate.expert * sent.expert_s)
    weights = link * (2 * sent.gather_s + sent.scatter_s)
    sends = link * 2 * sent.pipeline_s
    beside = link * (2 + full) * sent.expert_s + sends
    waited = np.where(both, longer(beside, busy) - busy, sends)
    exposed = link * (2 + full) * parallel + waited + rate.sharded * weights + longer(weights, busy) - busy
    return Passes(
        forward=rate.compute * forward, backward=rate.compute * (backward + again + casts),
        weight=rate.compute * (work.backward_products - 1) * products, host=rate.compute * (busy - kernels),
        exposed=exposed, sends=np.where(both, 0.0, sends), hidden=np.where(both, beside - waited, 0.0),
    )  # fmt: skip


def combine(work: Work, sent: Exchange, shape: Layouts, rate: Rates) -> StepTable:
    """Seconds of a step from counted work and reached rates; the pipeline's bubble as if all stages were equal."""
    each, count = passes(work, sent, shape, rate), shape.micro_batches
    once = rate.link * np.exp(rate.bus_sharing * sent.bus) * sent.gradients_s
    return StepTable(
        forward=count * each.forward, backward=count * each.backward, host=count * each.host,
        communicate=count * each.exposed + rate.gradients * once,
        update=rate.update * work.update_s / rate.bandwidth + work.orthogonal_s / rate.head,
        idle=_bubble(shape, each) * rate.bubble,
    )  # fmt: skip


def _bubble(shape: Layouts, each: Passes) -> Numbers:
    """Seconds in which a rank of equal ones has nothing to do.

    Passes of one direction: ``(p - 1) / v`` micro batches, but for what weights' gradients fill. DualPipe:
    ``(p / 2 - 1) (F&B + B - 3 W)`` (arXiv 2412.19437, table 2), F&B a forward and a backward pass together and B a
    backward pass alone; and before and after all are paired, ``p`` micro batches whose sending nothing hides.
    """
    one_way = (each.total - _filled(shape, each.weight)) * (shape.pp - 1) / shape.virtual_stages
    backward = (each.total + each.hidden) * each.backward / np.maximum(each.forward + each.backward, 1e-30)
    idle = np.maximum(0.0, (shape.pp / 2 - 1) * (each.total + backward - 3 * each.weight))
    both_ways = idle + np.minimum(shape.pp, shape.micro_batches) * each.hidden
    return np.where(shape.schedule == SCHEDULES.index("dualpipe"), both_ways, one_way)


def _filled(shape: Layouts, weight_s: Numbers) -> Numbers:
    """Of the wait for a micro batch on another stage, what zero-bubble schedules fill with gradients of weights.

    Nobody waits for those themselves, and others of them are made meanwhile (Qi et al., 2023, arXiv 2401.10241, table
    2: ZB-H1; see ``pipeline.simulate``).
    """
    waits = np.maximum(shape.pp - 1, 1.0)
    others = np.minimum(shape.micro_batches - 1, waits) / waits
    return np.where(shape.schedule == SCHEDULES.index("zero_bubble"), (1 + others) * weight_s, 0.0)


def longer(one: Value, other: Value) -> Numbers:
    """The fourth-power mean of two times: nearly the longer one."""
    return np.asarray((one**4 + other**4) ** 0.25)
