"""What would make a run fit: the least changes to it, ranked by how much slower they make it.

Layouts, micro batches and recomputation are tried by every search; a change is beyond those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from trainwright.hardware.nodes import cluster as named_cluster
from trainwright.hardware.nodes import node_size
from trainwright.planner.adapters import adaptable
from trainwright.planner.predict.forecast import forecast
from trainwright.planner.search.candidates import Network, candidates
from trainwright.planner.search.layouts import Ranked, compare, ranked, step_seconds
from trainwright.spec.device import ClusterSpec
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variant:
    """A changed run."""

    name: str
    workload: Workload
    offload: Offload = "none"
    trains_less: bool = False
    shorter: bool = False
    """Its sequences are shorter: the longest that fit are enough to know."""


def changes(
    model: Network, workload: Workload, cluster: ClusterSpec, stack: Stack, *, most_devices: int = 16_384
) -> tuple[Change, ...]:
    """The changes after which ``workload`` fits on ``cluster``; pairs where no single one does.

    Those that train everything come first, and among them the least slowdown.

    Raises:
        RecipeError: see ``search.layouts.compare``.
    """
    unit = _unchanged_s_per_token(model, workload, cluster, stack)
    singles = list(_singles(workload, cluster, model))
    found = _those_that_fit(singles, model, cluster, stack, unit)
    for more in larger(cluster, most_devices):
        filled = _tried(_Variant(name=f"{more.devices:,} devices", workload=workload), model, more, stack, unit)
        if filled is not None:
            found.append(filled)
            break
    if all(each.trains_less or each.devices > cluster.devices for each in found):
        pairs = (_both(one, other) for one, other in product(singles, singles) if one.offload != "none")
        found += _those_that_fit([each for each in pairs if each is not None], model, cluster, stack, unit)
    return tuple(sorted(found, key=lambda change: (change.trains_less, change.slowdown)))


def _those_that_fit(
    variants: Iterable[_Variant], model: Network, cluster: ClusterSpec, stack: Stack, unit: float
) -> list[Change]:
    """Longest sequences come first: shorter ones are not tried once some fit. Nor are drives where host memory does."""
    found: list[Change] = []
    shortened: set[str] = set()
    in_memory: list[tuple[str, Workload]] = []
    for each in variants:
        place = each.offload.removesuffix("-nvme")
        if (each.shorter and place in shortened) or (place, each.workload) in in_memory:
            continue
        change = _tried(each, model, cluster, stack, unit)
        if change is None:
            continue
        found.append(change)
        in_memory.append((each.offload, each.workload))
        if each.shorter:
            shortened.add(place)
    return found


def _unchanged_s_per_token(model: Network, workload: Workload, cluster: ClusterSpec, stack: Stack) -> float:
    """Device-seconds for a token of the fastest layout, whatever memory it takes; NaN where nothing divides."""
    every = candidates(model, workload, [cluster.devices], cluster, stack, wasteful=True).layouts
    if not len(every):
        return float("nan")
    seconds = float(np.min(step_seconds(model, workload, every, cluster, stack)))
    return seconds * cluster.devices / workload.batch_tokens


def _singles(workload: Workload, cluster: ClusterSpec, model: Network) -> Iterator[_Variant]:
    """Every change by itself, on the same devices."""
    if not isinstance(model, ModelSpec):
        if workload.states != "pure":
            yield _Variant(name="weights and states in 16 bits alone", workload=replace(workload, states="pure"))
        return
    if cluster.node.bus is not None:
        yield _Variant(name="offload the optimizer's state", workload=workload, offload="optimizer")
        yield _Variant(name="offload weights, gradients and the optimizer's state", workload=workload, offload="all")
    if cluster.node.bus is not None and cluster.node.nvme_bytes:
        yield _Variant(name="offload the optimizer's state to NVMe", workload=workload, offload="optimizer-nvme")
        everything = "offload weights, gradients and the optimizer's state to NVMe"
        yield _Variant(name=everything, workload=workload, offload="all-nvme")
    if workload.adapter is None:
        if workload.optimizer == "adamw" and workload.moments != "int8":
            yield _Variant(name="8-bit optimizer", workload=replace(workload, moments="int8"))
        if workload.states != "pure" and workload.precision not in {"fp32", "tf32"}:
            yield _Variant(name="weights and states in 16 bits alone", workload=replace(workload, states="pure"))
        if model.kind == "decoder":
            adapter = Adapter(rank=ADAPTER_RANK, targets=adaptable(model))
            yield _Variant(name="LoRA", workload=replace(workload, adapter=adapter), trains_less=True)
            quantised = replace(workload, adapter=replace(adapter, frozen="nf4"))
            yield _Variant(name="QLoRA", workload=quantised, trains_less=True)
    if not workload.fused_loss and model.makes_logits:
        yield _Variant(name="fused loss", workload=replace(workload, fused_loss=True))
    if not workload.fused_attention:
        yield _Variant(name="fused attention", workload=replace(workload, fused_attention=True))
    tokens = workload.sequence_tokens // 2
    while tokens >= LEAST_SEQUENCE_TOKENS and model.kind != "vision":
        shorter = replace(workload, sequence_tokens=tokens)
        yield _Variant(name=f"sequences of {tokens:,} tokens", workload=shorter, shorter=True)
        tokens //= 2


def _both(one: _Variant, other: _Variant) -> _Variant | None:
    """Offload ``one`` and a change ``other`` of the workload together."""
    if other.offload != "none" or other.trains_less:
        return None
    return replace(other, name=f"{one.name}, {other.name}", offload=one.offload)


def larger(cluster: ClusterSpec, most_devices: int) -> Iterator[ClusterSpec]:
    """Twice the devices, again and again: a part of a node is filled up first, then there are more nodes."""
    size = node_size(cluster.device.name)
    while True:
        if cluster.nodes == 1 and 2 * cluster.devices <= size:
            cluster = named_cluster(f"{2 * cluster.devices}x{cluster.device.name}")
        else:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
        if cluster.devices > most_devices:
            return
        yield cluster


def _tried(variant: _Variant, model: Network, cluster: ClusterSpec, stack: Stack, unit: float) -> Change | None:
    """The change, if the run fits with it, the host's memory included."""
    if isinstance(model, ModelSpec) and variant.workload.problems(model):
        return None
    found = compare(
        model, variant.workload, [cluster.devices], cluster, stack, offload=variant.offload
    )  # fmt: skip
    if not found.fits.any():
        return None
    best = forecast(model, variant.workload, found.layouts.take(found.order()[:1]), cluster, stack)
    if not best.memory.fits_host(cluster.node)[0]:
        return None
    seconds = float(best.step_s[0]) * cluster.devices / variant.workload.batch_tokens
    return Change(
        name=variant.name, slowdown=seconds / unit, devices=cluster.devices,
        best=ranked(best, cluster.device)[0], trains_less=variant.trains_less,
    )  # fmt: skip
