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


def ingredients(
    model: ModelSpec | ConvNetSpec, workload: Workload, cluster: ClusterSpec, stack: Stack
) -> dict[str, tuple[str, ...]]:
    """Each field of ``Rates`` as the product of named numbers: of ``Efficiency``, or of the stack (``stack.x``)."""
    kind = generation(cluster.device)
    device = (f"products.{kind}", f"devices.{cluster.device.name}")
    adapter = workload.adapter
    experts = isinstance(model, ModelSpec) and model.experts is not None
    named = {
        "compute": ("stack.compute", f"stack.tuned.{tuned_key(kind, workload.precision)}",
                    *((f"adapters.{adapter.method}",) if adapter else ())),
        "products": (*device, f"precisions.{workload.precision}"),
        "head": device,
        "attention": (*device, f"attention.{kind}", "stack.attention") if workload.fused_attention else device,
        "traffic": (f"traffic.{stack.memory.kernels}", "stack.traffic", *(("expert_traffic",) if experts else ())),
        "loss": ("loss", *(("fused_loss",) if workload.fused_loss else ())),
        "launch_s": ("launch_s", "stack.launch"),
        "link": () if on_own_links(cluster) else ("bus",),
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


def combine(work: Work, sent: Exchange, shape: Layouts, rate: Rates) -> StepTable:
    """Seconds of a step from counted work and reached rates."""
    aligned = work.products_s + (1 / rate.unaligned - 1) * work.unaligned_s
    products = aligned / (rate.products * work.busy**rate.tiles) + rate.operands * work.operands_s
    attention = work.attention_s / rate.attention
    between = (
        rate.traffic * work.traffic_s + rate.scores * work.scores_s + rate.encoder * work.encoder_s
    ) / rate.bandwidth
    blocks = products + attention + between
    head, loss = work.head_s / rate.head, rate.loss * work.loss_s
    forward = blocks + head + loss / 2
    backward = work.backward_products * (products + head) + ATTENTION_BACKWARD * attention + 2 * between + loss / 2
    full = shape.recompute == RECOMPUTES.index("full")
    selective = shape.recompute == RECOMPUTES.index("selective")
    again = np.where(full, blocks, np.where(selective, rate.selective * blocks, 0.0))
    casts = rate.casts * work.casts_s / rate.bandwidth
    kernels = forward + backward + again + casts
    host = rate.launch_s * (work.kernels + rate.expert_kernels * work.expert_layers) * (3 + full)
    busy = longer(kernels, host)
    link = rate.link * np.exp(rate.bus_sharing * sent.bus)
    parallel = rate.tensor * sent.tensor_s + rate.context * sent.context_s + rate.expert * sent.expert_s
    weights = link * (2 * sent.gather_s + sent.scatter_s)
    exposed = (
        link * ((2 + full) * parallel + 2 * sent.pipeline_s) + rate.sharded * weights + longer(weights, busy) - busy
    )
    count = shape.micro_batches
    part = rate.compute * count
    waited = rate.compute * (busy - _filled(shape, (work.backward_products - 1) * products)) + exposed
    return StepTable(
        forward=part * forward, backward=part * (backward + again + casts),
        communicate=count * exposed + rate.gradients * link * sent.gradients_s,
        update=rate.update * work.update_s / rate.bandwidth, host=part * (busy - kernels),
        idle=waited * rate.bubble * (shape.pp - 1) / shape.virtual_stages,
    )  # fmt: skip


def _filled(shape: Layouts, weight_gradients_s: Value) -> Numbers:
    """Of the wait for a micro batch on another stage, what zero-bubble schedules fill with gradients of weights.

    Nobody waits for those themselves, and others of them are made meanwhile (Qi et al., 2023, arXiv 2401.10241, table
    2: ZB-H1; see ``pipeline.makespan_s``).
    """
    waits = np.maximum(shape.pp - 1, 1.0)
    others = np.minimum(shape.micro_batches - 1, waits) / waits
    return np.where(shape.schedule == SCHEDULES.index("zero_bubble"), (1 + others) * weight_gradients_s, 0.0)


def longer(one: Value, other: Value) -> Numbers:
    """The fourth-power mean of two times: nearly the longer one."""
    return np.asarray((one**4 + other**4) ** 0.25)
