"""What would make a run fit: the least changes to it, ranked by how much slower they make it.

Layouts, micro batches and recomputation are tried by every search; a change is beyond those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.nodes import cluster as named_cluster
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.catalogue.support import QUANTISING_KINDS, check
from trainwright.planner.counts.adapters import QUANTISED_FROZEN, USUAL_RANK, attention, beside
from trainwright.planner.counts.images import batch_text
from trainwright.planner.counts.kernels import RateSource
from trainwright.planner.counts.layouts import RECOMPUTES, FixedLayout
from trainwright.planner.forecast.forecast import moved_slowdown, step_s
from trainwright.planner.forecast.host_link import UNUSUAL
from trainwright.planner.forecast.switches import check_switches
from trainwright.planner.rates.catalogue import CATALOGUE
from trainwright.planner.search.candidates import candidates
from trainwright.planner.search.fitting import Fitting
from trainwright.planner.search.layouts import Ranked, ranked
from trainwright.spec.device import ClusterSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, Offload, Recompute, Workload

LEAST_SEQUENCE_TOKENS = 512
LEAST_RANK = 4
SLOW = 10.0
"""Times as long as the run would take with memory enough, beyond which several changes are tried together, too."""
MOST_TOGETHER, BETTER = 5, 4.0
"""Changes of several things at once that are named, the least slowdown first, and up to so many times that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """``name`` says what to change, ``best`` the layout that a plan chooses then.

    ``slowdown`` is device-seconds for a token, over those of the unchanged run were there memory for it.
    ``trains_less``: only adapters are trained.
    """

    name: str
    slowdown: float
    devices: int
    best: Ranked
    trains_less: bool = False
    fields: Mapping[str, str | bool] = field(default_factory=dict)
    """What to ask for it, by a question's fields."""
    unusual: bool = False
    """Something leaves the device, or there are more devices."""
    is_layout: bool = False
    """The run stays as it is; what was fixed of its layout does not."""

    @property
    def order(self) -> tuple[float, ...]:
        """Returns the key of the best first.

        What trains everything comes before what trains less; of each what surely fits, unless it is beyond ``SLOW``,
        and then the least slowdown: that of what is unusual times ``UNUSUAL``, that of another layout over it.
        """
        kind = 1.0 if self.best.unsure else 2.0 * (self.slowdown > SLOW)
        return float(self.trains_less), kind, self.slowdown * UNUSUAL ** (self.unusual - self.is_layout)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Variant:
    """A changed run: ``changed`` are fields of its workload; of equals in ``group`` the first that fits is enough."""

    name: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    offload: Offload = "none"
    recompute: Recompute | None = None
    trains_less: bool = False
    group: str = ""
    fields: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, str | bool]:
        """Returns the fields of a question that ask for it."""
        return {**self.fields, **({"layout": f"offload={self.offload}"} if self.offload != "none" else {})}

    @property
    def moves(self) -> bool:
        """Returns whether something leaves the device, which helps whatever else is changed."""
        return self.offload != "none" or bool(self.changed.keys() & {"paged_moments", "activation_offload"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What no change touches; ``unit``: device-seconds of the unchanged run for a token, were there memory for it."""

    search: Fitting
    usual: FixedLayout
    unit: float
    frugal: bool
    """What surely fits comes first, as in the plan that the change leads to."""


PURE = _Variant(name="weights and states in 16 bits alone", changed={"states": "pure"}, fields={"states": "pure"})
PAGED_8_BIT = _Variant(
    name="paged 8-bit optimizer",
    changed={"paged_moments": True, "moments": "int8"},
    fields={"paged_moments": True, "moments": "int8"},
)
IN_BACKWARD = _Variant(
    name="updates in the backward pass", changed={"update_in_backward": True}, fields={"update_in_backward": True}
)
"""All three together: pytorch/torchtune@bd2a0fc7c:recipes/configs/llama3_1/8B_full_single_device.yaml, lines 57-78."""


def changes(
    run: RunSpec,
    *,
    source: RateSource = CATALOGUE,
    most_devices: int = 16_384,
    usual: FixedLayout | None = None,
    frugal: bool = False,
    unit: float | None = None,
) -> tuple[Change, ...]:
    """Returns the changes after which the run fits; the best of several together where no single one is enough.

    They stand in the order of ``Change.order``. What the run's software does not run, or
    ``source`` has no rate for, is left out. Raises as ``search.layouts.compare``.

    Args:
        run: does not fit.
        source: says how fast a device is.
        most_devices: of a larger cluster.
        usual: parts of a layout that the software fixes by itself, whatever is changed.
        frugal: layouts are chosen as where a model is tuned; where adapters are trained they always are.
        unit: device-seconds of the unchanged run for a token that slowdowns are told by; None: those of its fastest
            layout, were there memory for it.
    """
    unit = unchanged_s_per_token(run, source, usual) if unit is None else unit
    known = _Known(search=Fitting(source), usual=usual or FixedLayout(), unit=unit, frugal=frugal)
    singles = list(_singles(run))
    fitting = _those_that_fit(singles, run, known)
    fitting += _on_more(run, most_devices, known)
    near = (each for each in fitting if not each.trains_less and each.devices == run.cluster.devices)
    if all(each.slowdown > SLOW for each in near):
        together = sorted(_those_that_fit(_together(run, singles), run, known), key=lambda each: each.slowdown)
        fitting += [each for each in together if each.slowdown <= BETTER * together[0].slowdown][:MOST_TOGETHER]
    return tuple(sorted(fitting, key=lambda change: change.order))


def surest(
    run: RunSpec, *, unit: float, source: RateSource = CATALOGUE, usual: FixedLayout | None = None, frugal: bool = False
) -> Change | None:
    """Returns the best change after which a run surely fits that may not; None where a single one is not enough.

    Only what can be asked for is looked at. Arguments are those of ``changes``, and so are errors.
    """
    known = _Known(search=Fitting(source), usual=usual or FixedLayout(), unit=unit, frugal=frugal)
    again = [_Variant(name=f"recompute {each}", recompute=each, fields={"recompute": each}) for each in RECOMPUTES[1:]]
    fitting = _those_that_fit([*(again if run.model.is_divisible else ()), *_singles(run)], run, known)
    fitting += _on_more(run, 2 * run.cluster.devices, known)
    sure = (each for each in fitting if each.fields and not each.best.unsure)
    return min(sure, key=lambda change: change.order, default=None)


def _on_more(run: RunSpec, most_devices: int, known: _Known) -> list[Change]:
    """Returns the fewest devices on which the run fits, and where that is not sure the fewest on which it is."""
    found: list[Change] = []
    for more in larger(run.cluster, most_devices):
        variant = _Variant(name=f"{more.devices:,} devices", fields={"on": more.name})
        change = _tried(variant, replace(run, cluster=more), known)
        if change is not None and not (found and change.best.unsure):
            found.append(replace(change, unusual=True))
        if found and not found[-1].best.unsure:
            break
    return found


def _those_that_fit(variants: Iterable[_Variant], run: RunSpec, known: _Known) -> list[Change]:
    """Returns changes that fit, nothing on drives that fits into memory.

    Of a group that is the first, and where it may not fit the first that surely does.
    """
    fitting: list[Change] = []
    found: set[tuple[str, str]] = set()
    unsure: set[tuple[str, str]] = set()
    in_memory: list[tuple[str, Workload]] = []
    for each in variants:
        place, workload = each.offload.removesuffix("-nvme"), replace(run.workload, **each.changed)
        if (place, each.group) in found or (place, workload) in in_memory:
            continue
        change = _tried(each, run, known)
        if change is None or (change.best.unsure and (place, each.group) in unsure):
            continue
        fitting.append(change)
        in_memory.append((each.offload, workload))
        if each.group:
            (unsure if change.best.unsure else found).add((place, each.group))
    return fitting


def unchanged_s_per_token(run: RunSpec, source: RateSource, usual: FixedLayout | None = None) -> float:
    """Returns the fastest layout's device-seconds for a token, at any memory; NaN where nothing divides."""
    every = candidates(run, [run.cluster.devices], wasteful=True, layout=usual).layouts
    seconds = float(np.min(step_s(run, every, source))) if len(every) else float("nan")
    return seconds * run.cluster.devices / run.workload.step_tokens


def _singles(run: RunSpec) -> Iterator[_Variant]:
    """Yields every change by itself, on the same devices."""
    workload, cluster = run.workload, run.cluster
    if not run.model.is_divisible:
        if workload.states != "pure":
            yield PURE
        return
    model = run.transformer
    if cluster.node.bus is not None:
        yield from _moves(run)
    if workload.adapter is None:
        if workload.optimizer == "adamw" and workload.moments != "int8":
            yield _Variant(name="8-bit optimizer", changed={"moments": "int8"}, fields={"moments": "int8"})
        if workload.states != "pure" and workload.precision not in {"fp32", "tf32"}:
            yield PURE
    yield from _adapters(run)
    yield from _smaller_steps(run)
    if not workload.fused_loss and model.makes_logits:
        yield _Variant(name="fused loss", changed={"fused_loss": True}, fields={"fused_loss": True})
    if not workload.fused_attention and not (model.is_divisible and run.transformer.dropout.attention):
        yield _Variant(name="fused attention", changed={"fused_attention": True})
    tokens = workload.sequence_tokens // 2
    while tokens >= LEAST_SEQUENCE_TOKENS and model.kind != "vision":
        name, asked = f"sequences of {tokens:,} tokens", {"sequence_tokens": str(tokens)}
        changed: dict[str, Any] = {"sequence_tokens": tokens}
        if workload.example_tokens is not None:  # as many examples a step, cut off earlier
            changed |= {"batch_tokens": workload.batch_sequences * tokens}
            changed |= {"example_tokens": min(tokens, workload.example_tokens)}
            asked |= {"batch_tokens": str(changed["batch_tokens"])}
        yield _Variant(name=name, changed=changed, group="shorter", fields=asked)
        tokens //= 2


def _adapters(run: RunSpec) -> Iterator[_Variant]:
    """Yields adapters in place of all weights, and quantised weights beside them."""
    whole, less = run.workload.adapter, run.workload.adapter is None
    if less and run.transformer.kind != "decoder":
        return
    adapter = whole or beside(run.transformer, None, rank=USUAL_RANK)
    if less:
        yield _Variant(name="LoRA", changed={"adapter": adapter}, trains_less=True, fields={"method": "lora"})
    if less or (adapter.frozen not in QUANTISED_FROZEN and run.cluster.device.kind in QUANTISING_KINDS):
        quantised = {"adapter": replace(adapter, frozen="nf4")}
        yield _Variant(name="QLoRA", changed=quantised, trains_less=less, fields={"method": "qlora"})
    if whole is not None and whole.parameters is None:
        yield from _smaller_adapters(run, whole)


def _smaller_adapters(run: RunSpec, adapter: Adapter) -> Iterator[_Variant]:
    """Yields adapters beside attention alone, and half of their rank again and again."""
    fewer = attention(run.transformer)
    if set(fewer) < set(adapter.targets):
        changed = {"adapter": replace(adapter, targets=fewer, experts=False)}
        yield _Variant(name="adapters beside attention alone", changed=changed, fields={"targets": "attention"})
    rank = adapter.rank // 2
    while rank >= LEAST_RANK:
        changed = {"adapter": replace(adapter, rank=rank)}
        yield _Variant(name=f"adapters of rank {rank}", changed=changed, group="rank", fields={"rank": str(rank)})
        rank //= 2


def _smaller_steps(run: RunSpec) -> Iterator[_Variant]:
    """Yields half of a step's tokens again and again, where a step is one micro batch, and saves as much."""
    sequences, tokens = run.workload.batch_sequences // 2, run.workload.sequence_tokens
    while run.workload.update_in_backward and sequences >= 1:
        step = sequences * tokens
        name, fields = f"steps of {batch_text(run.model, step)}", {"batch_tokens": str(step)}
        yield _Variant(name=name, changed={"batch_tokens": step}, group="smaller", fields=fields)
        sequences //= 2


def _moves(run: RunSpec) -> Iterator[_Variant]:
    """Yields what leaves the device for host memory or drives."""
    workload, cluster = run.workload, run.cluster
    yield _Variant(name="offload the optimizer's state", offload="optimizer")
    yield _Variant(name="offload weights, gradients and the optimizer's state", offload="all")
    if cluster.node.nvme_bytes:
        yield _Variant(name="offload the optimizer's state to NVMe", offload="optimizer-nvme")
        yield _Variant(name="offload weights, gradients and the optimizer's state to NVMe", offload="all-nvme")
    if workload.adapter is not None:
        yield _Variant(name="offload the frozen weights", offload="frozen")
    elif workload.optimizer == "adamw" and cluster.device.kind == "cuda" and not workload.paged_moments:
        asked: dict[str, str | bool] = {"paged_moments": True}
        kept = workload.moments or "fp32"
        yield _Variant(name="paged optimizer", changed={"paged_moments": True, "moments": kept}, fields=asked)
        if workload.moments != "int8":
            yield PAGED_8_BIT
    if not workload.activation_offload:
        offloads = {"activation_offload": True}
        yield _Variant(name="offload activations", changed=offloads, fields=offloads)


def _together(run: RunSpec, singles: Sequence[_Variant]) -> Iterator[_Variant]:
    """Yields what moves bytes with each other change, and what people tune a whole model with on one device."""
    known: set[frozenset[str]] = set()
    for one, other in product(singles, singles):
        names = frozenset((one.name, other.name))
        if one.moves and names not in known and (both := _both(one, other)) is not None:
            known.add(names)
            yield both
    workload = run.workload
    paged = workload.paged_moments and workload.moments == "int8" and not workload.update_in_backward
    if workload.adapter is not None or not (paged or PAGED_8_BIT in singles) or workload.precision in {"fp32", "tf32"}:
        return
    parts = [*([] if workload.states == "pure" else [PURE]), *([] if paged else [PAGED_8_BIT]), IN_BACKWARD]
    whole = reduce(lambda one, other: _both(one, other) or one, parts)
    sequences, devices = workload.batch_sequences, run.cluster.devices
    while sequences >= devices:
        tokens = sequences * workload.sequence_tokens
        smaller = sequences < workload.batch_sequences
        yield replace(
            whole,
            name=f"{whole.name}, steps of {batch_text(run.model, tokens)}" if smaller else whole.name,
            changed={**whole.changed, "batch_tokens": tokens},
            fields={**whole.fields, **({"batch_tokens": str(tokens)} if smaller else {})},
            group="in backward",
        )
        sequences //= 2


def _both(one: _Variant, other: _Variant) -> _Variant | None:
    """Returns two changes together; None where they contradict, or train less."""
    twice = other.offload != "none" and one.offload != "none"
    homeless = one.offload not in ("none", "frozen") or other.offload not in ("none", "frozen")
    changed = {**one.changed, **other.changed}
    if one == other or twice or one.trains_less or other.trains_less or one.changed.keys() & other.changed.keys():
        return None
    if homeless and "paged_moments" in changed:
        return None
    return _Variant(
        name=f"{one.name}, {other.name}",
        changed=changed,
        offload=one.offload if one.offload != "none" else other.offload,
        group=other.group or one.group,
        fields={**one.fields, **other.fields},
    )


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


def _tried(variant: _Variant, run: RunSpec, known: _Known) -> Change | None:
    """Returns the change, if the run fits with it, the host's memory included."""
    workload, cluster = replace(run.workload, **variant.changed), run.cluster
    if workload.problems(run.model):
        return None
    run = replace(run, workload=workload)
    moved = FixedLayout() if variant.offload == "none" else FixedLayout(offload=variant.offload)
    again = FixedLayout() if variant.recompute is None else FixedLayout(recompute=variant.recompute)
    layout = known.usual | moved | again
    try:
        check(run, layout)
        check_switches(run, layout)
        # A plan of the changed run has to choose the same.
        frugal = known.frugal or variant.trains_less
        best = known.search.best(run, layout, frugal=frugal)
    except RecipeError:  # its software does not run it, or the source has no rate for what is asked of the device
        return None
    if best is None:
        return None
    slowdown = float(best.step_s[0]) * cluster.devices / workload.step_tokens / known.unit
    slowdown = moved_slowdown(best) if variant.moves and slowdown < 1 else slowdown  # none measured that it is faster
    (found,) = ranked(best, cluster.device)
    return Change(
        name=variant.name,
        slowdown=slowdown,
        devices=cluster.devices,
        best=found,
        trains_less=variant.trains_less,
        fields=variant.asked,
        unusual=variant.moves,
        is_layout=variant.recompute is not None,
    )
