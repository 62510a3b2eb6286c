"""What a stack of software reaches of a device: rates from the catalogue, fitted to published runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, fields, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.efficiency import DEFAULT, generation, matmul_reach, read_efficiency
from trainwright.hardware.catalogue.stacks import DEFAULT as UNNAMED
from trainwright.hardware.catalogue.stacks import read_stack, stack_names
from trainwright.planner.counts.adapters import adapter_moves
from trainwright.planner.counts.between import NARROW
from trainwright.planner.counts.images import convnet_work
from trainwright.planner.counts.kernels import Exposure, Kernels, Kind
from trainwright.planner.counts.layouts import Layouts, Numbers, Values
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.counts.process import Process
from trainwright.planner.counts.ranks import processors_left
from trainwright.planner.counts.work import Work, forward_work, on_tensor_cores
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.device import DeviceSpec
from trainwright.spec.efficiency import Efficiency
from trainwright.spec.model import ModelSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Flash

ATTENTION_BACKWARD = 2.5
"""Fused attention's backward pass makes five products for the forward pass's two (Dao, 2023, section 3.1.2)."""
SIXTEEN_BIT = ("bf16", "fp16")
SHARES = ("tensor", "context", "expert")
"""Rates that are the share of messages' time which nothing hides: no more than all of it."""
PRIOR_ROWS = 8
"""How many published runs what is assumed of a generation or a stack is worth."""
FLASH_SINCE = 8.0
"""The compute capability of the first GPUs that the kernels of ``spec.stack.Flash`` run on."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rates:
    """What one stack reaches on one device for one workload; see ``Efficiency`` and ``StackTime`` for each."""

    compute: Values
    products: Values
    head: Values
    attention: Values
    traffic: Values
    compiled: Values
    adapted: Values
    dequantised: Values
    loss: Values
    ramp: Values
    launch_s: Values
    link: Values
    bandwidth: Values
    tiles: Values
    unaligned: Values
    operands: Values
    scores: Values
    encoder: Values
    casts: Values
    expert_kernels: Values
    selective: Values
    tensor: Values
    context: Values
    expert: Values
    sharded: Values
    unhidden: Values
    gradients: Values
    overlap: Values
    bus_sharing: Values
    update: Values
    bubble: Values


def tuned_key(device_generation: str, precision: str) -> str:
    """Returns the name under which a stack's tuning for a generation and a format stands."""
    return f"{device_generation}-{'16' if precision in SIXTEEN_BIT else precision}"


def attention_key(device: DeviceSpec, flash: Flash) -> str:
    """Returns the name under which fused attention's share stands: by kernel too where there are several."""
    kind = generation(device)
    several = device.kind == "cuda" and float(device.compute_capability or 0) >= FLASH_SINCE
    return f"{kind}-{flash}" if several else kind


class Factor(NamedTuple):
    """A number of the catalogue, with the name that its files and fits give it; ``fixed``: measured, and not fitted."""

    name: str
    value: float
    fixed: bool = False


def factors(run: RunSpec, general: Efficiency) -> dict[str, tuple[Factor, ...]]:
    """Returns the numbers whose product each field of ``Rates`` is: of ``Efficiency``, or the stack (``stack.x``)."""
    workload, cluster, time = run.workload, run.cluster, run.stack.time
    kind = generation(cluster.device)
    # What each matrix product passes through: its share in a generation, and this device's against others of that.
    if on_tensor_cores(cluster.device, workload.precision):
        measured = Factor("matmul", matmul_reach(cluster.device, general.matmul), fixed=True)
        device: tuple[Factor, ...] = (_entry("products", general.products, kind), measured)
    else:
        device = (_entry("products", general.products, "cores"),)
    flash = _entry("attention", general.attention, attention_key(cluster.device, run.stack.flash))
    tuned = _entry("stack.tuned", time.tuned, tuned_key(kind, workload.precision))
    bus = "peer" if cluster.device.peer_to_peer else "staged"
    routed = (Factor("expert_traffic", general.expert_traffic),) if run.model.experts is not None else ()
    moved = (Factor("stack.traffic", time.traffic), *routed)
    fused = (*device, flash, Factor("stack.attention", time.attention))
    products = {
        "compute": (
            Factor("stack.compute", time.compute),
            tuned,
        ),
        "products": (*device, _entry("precisions", general.precisions, workload.precision)),
        "head": device,
        "attention": fused if workload.fused_attention else device,
        "traffic": (_entry("traffic", general.traffic, run.stack.memory.kernels), *moved),
        "compiled": (_entry("traffic", general.traffic, "compiled"), *moved),
        "loss": (
            Factor("loss", general.loss),
            *((Factor("fused_loss", general.fused_loss),) if workload.fused_loss else ()),
        ),
        "launch_s": (Factor("launch_s", general.launch_s), Factor("stack.launch", time.launch)),
        "tensor": (Factor("tensor", general.tensor), Factor("stack.tensor", time.tensor)),
        "sharded": (Factor("sharded", general.sharded), Factor("stack.sharded", time.sharded)),
        "unhidden": (Factor("stack.sharded", time.sharded),),
        "link": () if cluster.on_own_links or cluster.node.devices == 1 else (_entry("bus", general.bus, bus),),
        "bus_sharing": (_entry("bus_sharing", general.bus_sharing, bus),),
    }
    general_alone = (each.name for each in fields(Rates) if each.name not in products)
    return products | {name: (Factor(name, getattr(general, name)),) for name in general_alone}


def _entry(table: str, values: Mapping[str, float], key: str) -> Factor:
    """Returns a table's number; its default where it lacks the key, and 1 where it has no default."""
    return Factor(f"{table}.{key}", values.get(key, values.get(DEFAULT, 1.0)))


def rates(run: RunSpec, general: Efficiency) -> Rates:
    """Returns what the run's stack reaches, from the catalogue's numbers."""
    every = factors(run, general).items()
    return Rates(**bounded({name: math.prod(factor.value for factor in parts) for name, parts in every}))


def bounded(values: Mapping[str, Values]) -> dict[str, Values]:
    """Returns rates by name, of which shares are at most 1: what is slower beyond that, other numbers explain."""
    return {name: np.minimum(value, 1.0) if name in SHARES else value for name, value in values.items()}


def kinds_of_doubt(run: RunSpec) -> Iterator[str]:
    """Yields what makes a run less certain than one of a dense decoder that trains all weights in 16 or more bits."""
    model, workload = run.model, run.workload
    if workload.adapter is not None:
        yield "adapters"
    if isinstance(model, ModelSpec) and model.experts is not None:
        yield "experts"
    if isinstance(model, ModelSpec) and model.kind == "encoder":
        yield "encoders"
    if workload.precision in NARROW:
        yield "low_precision"


def doubts(run: RunSpec, general: Efficiency) -> Iterator[float]:
    """Yields the deviations that a run's range has beside its stack's own."""
    names = ["source", *kinds_of_doubt(run)]
    if others := doubt_of_generation(run, general):
        yield others
        names += ["untuned"] if others < general.doubt["generation"] else []
    if run.stack.time_of != run.stack.name:
        names.append("borrowed")
    yield from (general.doubt.get(name, 0.0) for name in names)


def doubt_of_generation(run: RunSpec, general: Efficiency) -> float:
    """Returns the deviation that a stack without runs on a generation of devices has for that; 0 for one with some.

    It has what all stacks have there together: the fewer runs, the less that tells. Of another vendor's kernels the
    runs of others tell nothing to a stack that has none, and a few runs not much to one that has some.
    """
    seen = has_own_runs(run)
    if seen and not is_apart(run):
        return 0.0
    runs = general.rows.get(generation(run.cluster.device), 0) if seen or not is_apart(run) else 0
    return general.doubt.get("generation", 0.0) * math.sqrt(PRIOR_ROWS / (PRIOR_ROWS + runs))


def beyond(run: RunSpec, step_tokens_per_device: Numbers, general: Efficiency) -> Numbers:
    """Returns the deviation [L] for each doubling by which a run's size, length and steps leave the span, in squares.

    The span is what 98 of 100 rows of language models have (``Efficiency.span``): of images it says nothing.
    """
    if run.model.sees_images:
        return np.zeros_like(step_tokens_per_device)
    asked = {
        "parameters": np.asarray(float(total_parameters(run.model))),
        "sequence_tokens": np.asarray(float(run.workload.sequence_tokens)),
        "step_tokens_per_device": step_tokens_per_device,
    }
    spans = ((value, *general.span[name]) for name, value in asked.items() if name in general.span)
    doublings = [np.log2(np.maximum(1.0, np.maximum(value / high, low / value))) for value, low, high in spans]
    return general.doubt.get("beyond", 0.0) * reduce(np.hypot, doublings, np.zeros_like(step_tokens_per_device))


def has_own_runs(run: RunSpec) -> bool:
    """Returns whether a stack's numbers are its own, and fitted to runs on this generation of devices too."""
    return run.stack.time_of == run.stack.name and generation(run.cluster.device) in run.stack.time.seen


def is_apart(run: RunSpec) -> bool:
    """Returns whether a device's kernels are another vendor's: what one stack reaches there says little of another."""
    return run.cluster.device.kind != "cuda"


def spread_of(run: RunSpec) -> float:
    """Returns the deviation of a stack's published runs.

    On another vendor's devices, without a run there, it is at least that of the surest stack that has some, and of
    software that nobody names: a guess is never surer than a measurement, nor surer for having a name.
    """
    kind, time = generation(run.cluster.device), run.stack.time
    if not is_apart(run) or has_own_runs(run):
        return time.spread
    measured = (each.time for each in map(read_stack, stack_names()) if each.time_of == each.name)
    surest = min((each.spread for each in measured if kind in each.seen), default=0.0)
    return max(time.spread, surest, read_stack(UNNAMED).time.spread)


WORK_OF: Mapping[Kind, tuple[str, ...]] = {
    "products": ("products_s", "unaligned_s", "operands_s", "remade_s"),
    "attention": ("attention_s", "short_s", "scores_s"),
    "between": ("traffic_s", "encoder_s", "casts_s", "adapted_s", "dequantised_s", "changed_s", "remade_traffic_s"),
    "head": ("head_s", "loss_s"),
    "launches": ("kernels", "expert_layers"),
    "update": ("update_s", "orthogonal_s"),
}
"""The counts of ``Work`` that are of each kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """The rates that published runs reach with a run's stack on its device; a ``RateSource``."""

    efficiency: Efficiency = field(default_factory=read_efficiency)
    assumed_process: Process | None = None
    """A process on a machine that was not measured; None: the numbers of the stack's file."""
    deviation: float | None = None
    """Of the logarithm of measured over predicted seconds, where the device's own peaks are uncertain."""

    def kernels(self, run: RunSpec, layouts: Layouts, *, without: Collection[Kind] = ()) -> Kernels:
        """Returns the seconds of counted work at the rates that the stack reaches; raises as ``forward_work``."""
        work, names = self.work(run, layouts), (name for kind in without for name in WORK_OF[kind])
        nothing: dict[str, Any] = dict.fromkeys(names, np.zeros(len(layouts)))
        return reached(replace(work, **nothing), self.rates(run), left=processors_left(run, layouts))

    def exposure(self, run: RunSpec) -> Exposure:
        """Returns what the stack makes of communication."""
        return exposure_of(self.rates(run))

    def spread(self, run: RunSpec) -> float:
        """Returns the deviation of ``spread_of`` with ``doubts``; another for a peak that is a guess."""
        if self.deviation is not None:
            return self.deviation
        return math.hypot(spread_of(run), *doubts(run, self.efficiency))

    def beyond(self, run: RunSpec, layouts: Layouts) -> Numbers:
        """Returns the deviation [L] of ``doublings_beyond``; none beside that of a peak that is a guess."""
        if self.deviation is not None:
            return np.zeros(len(layouts))
        tokens = layouts.batch_sequences * run.workload.tokens_per_sequence / layouts.devices
        return beyond(run, tokens, self.efficiency)

    def process(self, run: RunSpec) -> Process | None:
        """Returns what is assumed of a process; the same for every run."""
        del run
        return self.assumed_process

    def work(self, run: RunSpec, layouts: Layouts) -> Work:
        """Returns the counted work, at the datasheet's rates."""
        model, workload, device = run.model, run.workload, run.cluster.device
        if isinstance(model, ConvNetSpec):
            return convnet_work(model, workload, layouts, device)
        stack = run.stack
        written = stack.full_update_bytes if workload.element_bytes == 4 else None
        counted = forward_work(
            model,
            workload,
            layouts,
            device,
            eager=stack.memory.kernels == "eager",
            chosen=run.kernels,
            written_bytes=stack.update_bytes if written is None else written,
            adapter_moves=adapter_moves(stack),
            memory=stack.memory,
        )
        return replace(counted, attention_again=float(stack.selective == "attention"))

    def rates(self, run: RunSpec) -> Rates:
        """Returns every rate of the run, by name."""
        return rates(run, self.efficiency)


CATALOGUE = Catalogue()


TINY_S = 1e-12
"""What no pass is shorter than, but one that has nothing to do."""


def reached(work: Work, rate: Rates, *, left: Values = 1.0) -> Kernels:
    """Returns the seconds of counted work at given rates.

    Sending to experts keeps processors from computing while it overlaps; ``left`` is the share that it leaves.
    """
    aligned = work.products_s + (1 / rate.unaligned - 1) * work.unaligned_s
    products = aligned / (rate.products * work.busy**rate.tiles * left) + rate.operands * work.operands_s
    attention = (work.thin_heads * work.attention_s + rate.ramp * work.short_s) / (rate.attention * left)
    fused = np.where(np.asarray(work.compiled) > 0, rate.compiled, rate.traffic)
    moved = fused * work.traffic_s + rate.scores * work.scores_s + rate.encoder * work.encoder_s
    between = (moved + rate.adapted * work.adapted_s) / rate.bandwidth
    dequantised = (rate.dequantised * work.dequantised_s + work.changed_s) / rate.bandwidth
    head, loss = work.head_s / rate.head, rate.loss * work.loss_s
    forward = products + attention + between + dequantised
    # Scores that fused attention never writes are no reason to repeat it: it costs its whole forward pass all the same.
    core = (attention + rate.scores * work.scores_s / rate.bandwidth) / np.maximum(forward, TINY_S)
    return Kernels(
        forward=forward,
        backward=work.backward_products * products + ATTENTION_BACKWARD * attention + 2 * between + dequantised,
        weight=(work.backward_products - 1) * products,
        head=head + loss / 2,
        head_backward=work.backward_products * head + loss / 2,
        update=rate.update * work.update_s / rate.bandwidth + work.orthogonal_s / rate.head,
        casts=rate.casts * work.casts_s / rate.bandwidth,
        launches=rate.launch_s * (work.kernels + rate.expert_kernels * work.expert_layers),
        again=np.where(np.asarray(work.attention_again) > 0, core, rate.selective),
        remade=work.remade_s / (rate.products * work.busy**rate.tiles * left)
        + fused * work.remade_traffic_s / rate.bandwidth,
        pace=rate.compute,
        lighter=work.lighter,
        lighter_ends=work.lighter_ends,
    )


def exposure_of(rate: Rates) -> Exposure:
    """Returns the rates of communication."""
    return Exposure(**{each.name: getattr(rate, each.name) for each in fields(Exposure)})
