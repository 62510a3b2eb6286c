"""What would make a run fit: the least changes to it, ranked by how much slower they make it.

Layouts, micro batches and recomputation are tried by every search; a change is beyond those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.nodes import cluster as named_cluster
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.planner.counts.adapters import adaptable
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.forecast.forecast import step_s
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import candidates
from trainwright.planner.search.layouts import Ranked, compare, ranked
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, Offload, Workload

LEAST_SEQUENCE_TOKENS = 512
ADAPTER_RANK = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """``name`` says what to change, ``best`` the fastest layout then.

    ``slowdown`` is device-seconds for a token, over those that the fastest layout of the unchanged run would take were
    there memory for it. ``trains_less``: only adapters are trained.
    """

    name: str
    slowdown: float
    devices: int
    best: Ranked
    trains_less: bool = False
    fields: Mapping[str, str | bool] = field(default_factory=dict)
    """What to ask for it, by a question's fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variant:
    """A changed run."""

    name: str
    workload: Workload
    offload: Offload = "none"
    trains_less: bool = False
    shorter: bool = False
    """Its sequences are shorter: the longest that fit are enough to know."""
    fields: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, str | bool]:
        """Returns the fields of a question that ask for it."""
        return {**self.fields, **({"layout": f"offload={self.offload}"} if self.offload != "none" else {})}


def changes(run: RunSpec, *, source: RateSource = CATALOGUE, most_devices: int = 16_384) -> tuple[Change, ...]:
    """Returns the changes after which the run fits; pairs of them where no single one is enough.

    Those that train everything come first, and among them the least slowdown. What ``source`` has no rate for is left
    out. Raises as ``search.layouts.compare``.
    """
    unit = _unchanged_s_per_token(run, source)
    singles = list(_singles(run))
    fitting = _those_that_fit(singles, run, source, unit)
    for more in larger(run.cluster, most_devices):
        on = f"{more.nodes}x{more.node.devices}x{more.device.name}"
        variant = _Variant(name=f"{more.devices:,} devices", workload=run.workload, fields={"on": on})
        if (filled := _tried(variant, replace(run, cluster=more), source, unit)) is not None:
            fitting.append(filled)
            break
    if all(each.trains_less or each.devices > run.cluster.devices for each in fitting):
        pairs = (_both(one, other) for one, other in product(singles, singles) if one.offload != "none")
        fitting += _those_that_fit([each for each in pairs if each is not None], run, source, unit)
    return tuple(sorted(fitting, key=lambda change: (change.trains_less, change.slowdown)))


def _those_that_fit(variants: Iterable[_Variant], run: RunSpec, source: RateSource, unit: float) -> list[Change]:
    """Returns changes that fit; shorter sequences are not tried once longer fit, nor drives where memory does."""
    fitting: list[Change] = []
    shortened: set[str] = set()
    in_memory: list[tuple[str, Workload]] = []
    for each in variants:
        place = each.offload.removesuffix("-nvme")
        if (each.shorter and place in shortened) or (place, each.workload) in in_memory:
            continue
        if (change := _tried(each, run, source, unit)) is not None:
            fitting.append(change)
            in_memory.append((each.offload, each.workload))
            shortened |= {place} if each.shorter else set()
    return fitting


def _unchanged_s_per_token(run: RunSpec, source: RateSource) -> float:
    """Returns the fastest layout's device-seconds for a token, at any memory; NaN where nothing divides."""
    every = candidates(run, [run.cluster.devices], wasteful=True).layouts
    seconds = float(np.min(step_s(run, every, source))) if len(every) else float("nan")
    return seconds * run.cluster.devices / run.workload.batch_tokens


def _singles(run: RunSpec) -> Iterator[_Variant]:
    """Yields every change by itself, on the same devices."""
    workload, cluster = run.workload, run.cluster
    if not run.model.is_divisible:
        if workload.states != "pure":
            pure = replace(workload, states="pure")
            yield _Variant(name="weights and states in 16 bits alone", workload=pure, fields={"states": "pure"})
        return
    model = run.transformer
    if cluster.node.bus is not None:
        yield _Variant(name="offload the optimizer's state", workload=workload, offload="optimizer")
        yield _Variant(name="offload weights, gradients and the optimizer's state", workload=workload, offload="all")
    if cluster.node.bus is not None and cluster.node.nvme_bytes:
        yield _Variant(name="offload the optimizer's state to NVMe", workload=workload, offload="optimizer-nvme")
        everything = "offload weights, gradients and the optimizer's state to NVMe"
        yield _Variant(name=everything, workload=workload, offload="all-nvme")
    if workload.adapter is None:
        if workload.optimizer == "adamw" and workload.moments != "int8":
            yield _Variant(
                name="8-bit optimizer", workload=replace(workload, moments="int8"), fields={"moments": "int8"}
            )
        if workload.states != "pure" and workload.precision not in {"fp32", "tf32"}:
            pure = replace(workload, states="pure")
            yield _Variant(name="weights and states in 16 bits alone", workload=pure, fields={"states": "pure"})
        if model.kind == "decoder":
            adapter = Adapter(rank=ADAPTER_RANK, targets=adaptable(model))
            yield _Variant(
                name="LoRA", workload=replace(workload, adapter=adapter), trains_less=True, fields={"method": "lora"}
            )
            quantised = replace(workload, adapter=replace(adapter, frozen="nf4"))
            yield _Variant(name="QLoRA", workload=quantised, trains_less=True, fields={"method": "qlora"})
    if not workload.fused_loss and model.makes_logits:
        yield _Variant(name="fused loss", workload=replace(workload, fused_loss=True), fields={"fused_loss": True})
    if not workload.fused_attention:
        yield _Variant(name="fused attention", workload=replace(workload, fused_attention=True))
    tokens = workload.sequence_tokens // 2
    while tokens >= LEAST_SEQUENCE_TOKENS and model.kind != "vision":
        shorter = replace(workload, sequence_tokens=tokens)
        asked = {"sequence_tokens": str(tokens)}
        yield _Variant(name=f"sequences of {tokens:,} tokens", workload=shorter, shorter=True, fields=asked)
        tokens //= 2


def _both(one: _Variant, other: _Variant) -> _Variant | None:
    """Returns offload ``one`` and a change ``other`` of the workload together."""
    if other.offload != "none" or other.trains_less:
        return None
    return replace(other, name=f"{one.name}, {other.name}", offload=one.offload)


def larger(cluster: ClusterSpec, most_devices: int) -> Iterator[ClusterSpec]:
    """Yields clusters of twice the devices, again and again: a node is filled up first, then more are taken.

    A node without a name is none of the catalogue's: it is as full as it is, and without a network the only one.
    """
    listed = bool(cluster.node.name)
    size = node_size(cluster.device.name) if listed else cluster.node.devices
    while listed or cluster.scale_out is not None:
        if cluster.nodes == 1 and 2 * cluster.devices <= size:
            cluster = named_cluster(f"{2 * cluster.devices}x{cluster.device.name}")
        else:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
        if cluster.devices > most_devices:
            return
        yield cluster


def _tried(variant: _Variant, run: RunSpec, source: RateSource, unit: float) -> Change | None:
    """Returns the change, if the run fits with it, the host's memory included."""
    if variant.workload.problems(run.model):
        return None
    run, cluster = replace(run, workload=variant.workload), run.cluster
    try:
        compared = compare(run, [cluster.devices], offload=variant.offload, source=source)
    except RecipeError:  # the source has no rate for what the change asks of the device
        return None
    if not compared.fits.any():
        return None
    best = compared.forecast(compared.order()[:1])
    if not best.memory.fits_host(cluster.node)[0]:
        return None
    slowdown = float(best.step_s[0]) * cluster.devices / variant.workload.batch_tokens / unit
    (layout,), less, asked = ranked(best, cluster.device), variant.trains_less, variant.asked
    devices = cluster.devices
    return Change(name=variant.name, slowdown=slowdown, devices=devices, best=layout, trains_less=less, fields=asked)
