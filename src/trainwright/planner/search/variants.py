"""Changes of a run that may make it fit, each as a changed workload and as a question's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import product
from typing import Any

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.support import QUANTISING_KINDS
from trainwright.planner.counts.adapters import QUANTISED_FROZEN, USUAL_RANK, attention, beside
from trainwright.planner.counts.images import batch_text
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, Offload, Recompute

LEAST_SEQUENCE_TOKENS = 512
LEAST_RANK = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A changed run: ``changed`` are fields of its workload; of equals in ``group`` the first that fits is enough."""

    name: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    offload: Offload = "none"
    recompute: Recompute | None = None
    trains_less: bool = False
    cuts: bool = False
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


PURE = Variant(name="weights and states in 16 bits alone", changed={"states": "pure"}, fields={"states": "pure"})
PAGED_8_BIT = Variant(
    name="paged 8-bit optimizer",
    changed={"paged_moments": True, "moments": "int8"},
    fields={"paged_moments": True, "moments": "int8"},
)
IN_BACKWARD = Variant(
    name="updates in the backward pass", changed={"update_in_backward": True}, fields={"update_in_backward": True}
)
"""All three together: pytorch/torchtune@bd2a0fc7c:recipes/configs/llama3_1/8B_full_single_device.yaml, lines 57-78."""


def singles(run: RunSpec) -> Iterator[Variant]:
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
            yield Variant(name="8-bit optimizer", changed={"moments": "int8"}, fields={"moments": "int8"})
        if workload.states != "pure" and workload.precision not in {"fp32", "tf32"}:
            yield PURE
    yield from _adapters(run)
    yield from _smaller_steps(run)
    if not workload.fused_loss and model.makes_logits:
        yield Variant(name="fused loss", changed={"fused_loss": True}, fields={"fused_loss": True})
    if not workload.fused_attention and not (model.is_divisible and run.transformer.dropout.attention):
        yield Variant(name="fused attention", changed={"fused_attention": True})
    tokens = workload.sequence_tokens // 2
    while tokens >= LEAST_SEQUENCE_TOKENS and model.kind != "vision":
        name, asked = f"sequences of {tokens:,} tokens", {"sequence_tokens": str(tokens)}
        changed: dict[str, Any] = {"sequence_tokens": tokens}
        if workload.example_tokens is not None:  # as many examples a step, cut off earlier
            changed |= {"batch_tokens": workload.batch_sequences * tokens}
            changed |= {"example_tokens": min(tokens, workload.example_tokens)}
            asked |= {"batch_tokens": str(changed["batch_tokens"])}
        yield Variant(name=name, changed=changed, cuts=True, group="shorter", fields=asked)
        tokens //= 2


def _adapters(run: RunSpec) -> Iterator[Variant]:
    """Yields adapters in place of all weights, and quantised weights beside them."""
    whole, less = run.workload.adapter, run.workload.adapter is None
    if less and run.transformer.kind != "decoder":
        return
    adapter = whole or beside(run.transformer, None, rank=USUAL_RANK)
    loss = tuned_loss(run)
    if less:
        changed = {"adapter": adapter, **loss}
        yield Variant(name="LoRA", changed=changed, trains_less=True, fields={"method": "lora"})
    if less or (adapter.frozen not in QUANTISED_FROZEN and run.cluster.device.kind in QUANTISING_KINDS):
        quantised = {"adapter": replace(adapter, frozen="nf4"), **(loss if less else {})}
        yield Variant(name="QLoRA", changed=quantised, trains_less=less, fields={"method": "qlora"})
    if whole is not None and whole.parameters is None:
        yield from _smaller_adapters(run, whole)


def tuned_loss(run: RunSpec) -> dict[str, bool]:
    """Returns what tuning in place of the run changes of its loss: logits in chunks, but by software that says not."""
    whole = run.transformer.makes_logits and not run.workload.fused_loss
    return {"fused_loss": True} if whole and run.stack.chunked_loss is None else {}


def _smaller_adapters(run: RunSpec, adapter: Adapter) -> Iterator[Variant]:
    """Yields adapters beside attention alone, and half of their rank again and again."""
    fewer = attention(run.transformer)
    if set(fewer) < set(adapter.targets):
        changed = {"adapter": replace(adapter, targets=fewer, experts=False)}
        yield Variant(
            name="adapters beside attention alone", changed=changed, cuts=True, fields={"targets": "attention"}
        )
    rank = adapter.rank // 2
    while rank >= LEAST_RANK:
        changed = {"adapter": replace(adapter, rank=rank)}
        yield Variant(
            name=f"adapters of rank {rank}", changed=changed, cuts=True, group="rank", fields={"rank": str(rank)}
        )
        rank //= 2


def _smaller_steps(run: RunSpec) -> Iterator[Variant]:
    """Yields half of a step's tokens again and again, where a step is one micro batch, and saves as much."""
    sequences, tokens = run.workload.batch_sequences // 2, run.workload.sequence_tokens
    while run.workload.update_in_backward and sequences >= 1:
        step = sequences * tokens
        name, fields = f"steps of {batch_text(run.model, step)}", {"batch_tokens": str(step)}
        yield Variant(name=name, changed={"batch_tokens": step}, group="smaller", fields=fields)
        sequences //= 2


def _moves(run: RunSpec) -> Iterator[Variant]:
    """Yields what leaves the device for host memory or drives."""
    workload, cluster = run.workload, run.cluster
    yield Variant(name="offload the optimizer's state", offload="optimizer")
    yield Variant(name="offload weights, gradients and the optimizer's state", offload="all")
    if cluster.node.nvme_bytes:
        yield Variant(name="offload the optimizer's state to NVMe", offload="optimizer-nvme")
        yield Variant(name="offload weights, gradients and the optimizer's state to NVMe", offload="all-nvme")
    if workload.adapter is not None:
        yield Variant(name="offload the frozen weights", offload="frozen")
    elif workload.optimizer == "adamw" and cluster.device.kind == "cuda" and not workload.paged_moments:
        asked: dict[str, str | bool] = {"paged_moments": True}
        kept = workload.moments or "fp32"
        yield Variant(name="paged optimizer", changed={"paged_moments": True, "moments": kept}, fields=asked)
        if workload.moments != "int8":
            yield PAGED_8_BIT
    if not workload.activation_offload:
        offloads = {"activation_offload": True}
        yield Variant(name="offload activations", changed=offloads, fields=offloads)


def together(run: RunSpec, singles: Sequence[Variant]) -> Iterator[Variant]:
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


def _both(one: Variant, other: Variant) -> Variant | None:
    """Returns two changes together; None where they contradict, or train less."""
    twice = other.offload != "none" and one.offload != "none"
    homeless = one.offload not in ("none", "frozen") or other.offload not in ("none", "frozen")
    changed = {**one.changed, **other.changed}
    if one == other or twice or one.trains_less or other.trains_less or one.changed.keys() & other.changed.keys():
        return None
    if homeless and "paged_moments" in changed:
        return None
    return Variant(
        name=f"{one.name}, {other.name}",
        changed=changed,
        offload=one.offload if one.offload != "none" else other.offload,
        cuts=one.cuts or other.cuts,
        group=other.group or one.group,
        fields={**one.fields, **other.fields},
    )
