"""Turns a published row into a question to the planner: shape, workload, layout, and what had to be assumed.

Only what the row says is used: its columns, and the settings in its notes. Where a source does not print a setting the
framework's default is taken, which the stack's data file names. A decoder that the catalogue knows by name, and whose
columns agree with it, has the parts that no column says: biases, windows, latent attention.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from trainwright.hardware.catalogue.models import find_model
from trainwright.planner.evidence.rows import LARGEST, Record, number
from trainwright.planner.evidence.words import UnknownWord, compiled, flag, offloaded, switch, trains
from trainwright.spec.model import PLANNED_FAMILIES, ModelSpec
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    Offload,
    ParallelPlan,
)

GPT2_VOCABULARY = 50257
BERT_VOCABULARY = 30522
LLAMA_VOCABULARY = 32000
"""Of Llama and Llama 2 (arXiv 2302.13971, section 2.1)."""
_OF_FAMILIES = dict.fromkeys(re.split(r"[\d_]", name)[0] for name in PLANNED_FAMILIES if name not in ("resnet", "vit"))
ARCHITECTURES = (
    *_OF_FAMILIES,
    *("moe", "dense", "decoder", "encoder", "nemotron", "grok", "internlm", "baichuan", "yi", "olmo", "dbrx"),
    *("cohere", "command", "pythia", "stablelm"),
)
"""Words of which a row's architecture has one, families of text by their first word; no other network is counted."""
MLA = LatentAttention(query_rank=1536, kv_rank=512, rope_size=64, value_size=128)
"""DeepSeek-V3's (arXiv 2412.19437, section 4.2), which rows with latent attention share unless they say otherwise."""
ZERO_STAGES: dict[str, Literal[0, 1, 2, 3]] = {"ddp": 0, "zero0": 0, "zero1": 1, "zero2": 2}
NODE_DEVICES = 8
"""Devices where a row does not say: one node."""


class Axes(NamedTuple):
    """What ``dp_shard_or_fsdp`` says: a kind (ddp, zero0..3, fsdp) and over how many ranks, None where it does not."""

    kind: str
    ranks: int | None


def is_gated(record: Record) -> bool:
    """Returns True where the feed-forward has a gate: Llama-like shapes, their mixtures, and rows with ``swiglu``."""
    arch, notes = record.text("arch"), record.notes
    if switch(notes, "swiglu") or arch.startswith("llama"):
        return True
    return arch == "moe" and "transformer-impl" not in notes and "untie-embeddings-and-output-weights" not in notes


def vocabulary(record: Record, *, tp: int) -> int:
    """Returns the number of rows of the embedding; GPT-2's, padded as Megatron pads it, where none is given."""
    printed = record.number("vocab") or note_number(record, "vocab-size")
    if printed:
        return int(printed)
    text = record.text("notes")
    if match := re.search(r"\bvocab (?:default )?(\d+)(k?)", text):
        return int(match[1]) * (1000 if match[2] else 1)
    if match := re.search(r"\bV=(\d+)", text):
        return int(match[1])
    if record.text("arch").startswith("llama"):
        return LLAMA_VOCABULARY
    step = 128 * tp
    return -(-(BERT_VOCABULARY if record.text("arch") == "bert" else GPT2_VOCABULARY) // step) * step


def _head_size(record: Record, width: int, heads: int) -> int:
    """Returns what the notes say, else the width over the heads that the row prints: a whole number."""
    printed = note_number(record, "head_dim")
    if not printed and record.text("n_heads") and width % heads:
        raise ValueError(f"hidden is {width}, expected a multiple of n_heads, {heads}, or head_dim in the notes")
    return int(printed or width // heads)


def model_of(record: Record) -> ModelSpec:
    """Returns the network: the one that the row names, or the one that its columns and notes describe.

    Raises:
        ValueError: a size is missing or impossible.
    """
    tunes = trains(record.notes).tunes
    if (known := record.model) is not None:
        # Training makes sequences longer, and tuning puts a classifier's head on an encoder.
        classes = 2 if known.kind == "encoder" and tunes else known.classes
        return replace(known, context_tokens=max(known.context_tokens, record.whole("seq_len")), classes=classes)
    layers, width, arch = record.whole("n_layers"), record.whole("hidden"), record.text("arch")
    if arch and not any(word in arch.lower() for word in ARCHITECTURES):
        raise UnknownWord("arch", arch, f"one with {', '.join(ARCHITECTURES)}", ARCHITECTURES)
    heads = record.whole("n_heads", max(1, width // 128))
    llama, bert = is_gated(record), arch == "bert"
    usual_width = width * 8 // 3 if llama else 4 * width
    tied = flag("tied_embeddings", record.text("tied_embeddings"))
    rope = llama or "rope" in record.notes.get("position-embedding-type", "")
    model = ModelSpec(
        family="bert" if bert else "transformer",
        kind="encoder" if bert else "decoder",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=record.whole("n_kv_heads", heads),
        head_size=_head_size(record, width, heads),
        ffn_width=int(note_number(record, "dense_ffn") or record.whole("ffn_hidden", usual_width)),
        vocabulary=vocabulary(record, tp=record.whole("tp", 1)),
        context_tokens=512 if bert else record.whole("seq_len"),
        tied=not llama if tied is None else tied,
        gated=llama,
        norm="rmsnorm" if llama else "layernorm",
        norm_epsilon=1e-5,
        positions="rope" if rope else "learned",
        rope_theta=1e4,
        bias=not llama and "MPT" not in arch and "falcon" not in arch,
        activation="silu" if llama else "gelu",
        segments=2 if bert else 0,
        post_norm=bert,
        classes=2 if bert and tunes else 0,
        experts=_experts(record),
        further_layers=int(note_number(record, "mtp-num-layers") or 0),
        latent=MLA if any(switch(record.notes, name) for name in ("MLA", "multi-latent-attention")) else None,
    )
    if problems := model.problems():
        raise ValueError("; ".join(problems))
    return _known(record.text("model_name"), model)


def _known(name: str, shape: ModelSpec) -> ModelSpec:
    """Returns the catalogue's decoder of that name where it has this shape, with what rows change; else the shape."""
    found = find_model(name) if shape.kind == "decoder" else None
    if found is None or not isinstance(found.spec, ModelSpec) or _sizes(found.spec) != _sizes(shape):
        return shape
    told = ("vocabulary", "tied", "further_layers")
    context = max(found.spec.context_tokens, shape.context_tokens)
    return replace(found.spec, context_tokens=context, **{key: getattr(shape, key) for key in told})


def _sizes(model: ModelSpec) -> tuple[int, ...]:
    """Returns what the columns say of a decoder's blocks."""
    experts = model.experts
    inner = (model.ffn_width,) if experts is None else (experts.count, experts.active, experts.ffn_width)
    return (model.layers, model.width, model.heads, model.kv_heads, model.gated, *inner)


def _experts(record: Record) -> Experts | None:
    count = note_number(record, "experts") or note_number(record, "num-experts")
    if record.text("arch") != "moe":
        if count:
            raise ValueError("experts in an architecture that is called dense: other layers than the columns describe")
        return None
    if not count or not ("topk" in record.notes or "moe-router-topk" in record.notes):
        raise ValueError("a mixture of experts whose experts or top-k the row does not say")
    width = int(note_number(record, "moe-ffn-hidden-size") or record.whole("ffn_hidden", record.whole("hidden")))
    shared = int(note_number(record, "moe-shared-expert-intermediate-size") or 0)
    return Experts(
        count=int(count),
        active=int(note_number(record, "topk") or note_number(record, "moe-router-topk") or 2),
        ffn_width=width,
        shared_ffn_width=shared or int(note_number(record, "shared") or 0) * width,
        dense_layers=_dense_layers(record),
    )


def _dense_layers(record: Record) -> int:
    """Returns the number of layers before the first with experts; ``([0]*4+[1]*9)`` is Megatron's way to say 4."""
    if match := re.match(r"\(\[0\]\*(\d+)", record.notes.get("moe-layer-freq", "")):
        return int(match[1])
    return int(note_number(record, "dense_layers") or 0)


def note_number(record: Record, name: str) -> float | None:
    """Returns a setting in the notes as a number; None where it is not there, or is a word or a formula.

    Raises:
        ValueError: it is below zero, without end or beyond all counts.
    """
    text = record.notes.get(name, "")
    try:
        float(text)
    except ValueError:
        return None
    value = number(name, text)
    if value > LARGEST:
        raise ValueError(f"{name} is {text}, expected no more than {LARGEST:.0e}")
    return value


def note_whole(record: Record, *names: str) -> int | None:
    """Returns the first of the settings that the notes have, as a positive whole number; None where they have none.

    Raises:
        ValueError: it is another number, or a word.
    """
    for name in names:
        text = record.notes.get(name, "")
        if text.lower() in ("", "n/a", "none"):
            continue
        value = number(name, text)
        if not 1 <= value <= LARGEST or value != int(value):
            raise ValueError(f"{name} is {text}, expected a positive whole number")
        return int(value)
    return None


def axes_of(record: Record, stack: Stack) -> Axes:
    """Returns the data-parallel column taken apart.

    Raises:
        ValueError: it has another form.
    """
    text = record.text("dp_shard_or_fsdp")
    if not text:
        return Axes("fsdp" if stack.zero_stage == 3 else f"zero{stack.zero_stage}", None)
    match = re.fullmatch(r"(none|d?dp|h?fsdp|hsdp|zero-?[0-3])[a-z_-]*(?::([1-9]\d*)\D?.*)?", text.lower())
    if match is None:
        raise ValueError(f"dp_shard_or_fsdp is {text}, expected a form such as ddp:8, zero1:4 or fsdp_full:16")
    kind = match[1].replace("-", "")
    return Axes("ddp" if kind in ("none", "dp") else kind, int(match[2]) if match[2] else None)


def parallel_of(record: Record, stack: Stack) -> tuple[ParallelPlan, int]:
    """Returns the layout, and the number of devices that it uses.

    Raises:
        ValueError: a size is no positive whole number, the sizes do not multiply to the devices, or neither the row nor
            its software says how they are used.
    """
    tp, pp, cp = (record.whole(name, 1) for name in ("tp", "pp", "cp"))
    axes = axes_of(record, stack)
    inner = tp * pp * cp
    devices = record.whole("n_gpus", inner * (axes.ranks or max(1, NODE_DEVICES // inner)))
    if devices % inner:
        raise ValueError(f"n_gpus is {devices}, no multiple of tp x pp x cp = {inner}")
    ranks = devices // inner
    _refuse_other_count(record, axes, ranks, cp)
    if devices != inner and not _says_layout(record, stack, axes, devices):
        seen = f"n_gpus is {devices} with {stack.name}"
        raise ValueError(f"{seen}, expected tp, pp or dp_shard_or_fsdp with a count: the layout is not said")
    shard = ranks if axes.ranks is None else min(axes.ranks, ranks)
    sharded = axes.kind not in ("ddp", "zero0")
    virtual = _virtual_stages(record, pp)
    divided = _sequence_parallel(record)
    return ParallelPlan(
        dp_shard=shard if sharded else 1,
        dp_replicate=max(1, ranks // shard) if sharded else ranks,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=record.whole("ep", 1),
        micro_batch_sequences=record.whole("micro_batch", _micro_batch(record, pp)),
        compile=bool(compiled(record.text("compile"))),
        zero_stage=ZERO_STAGES.get(axes.kind, 3),
        sequence_parallel=stack.sequence_parallel if divided is None else divided,
        schedule="interleaved" if virtual > 1 else "1f1b",
        virtual_stages=virtual,
        offload=_offload(record, axes),
    ), devices


def _refuse_other_count(record: Record, axes: Axes, ranks: int, cp: int) -> None:
    """Raises ValueError where the printed count of ranks is not that of the devices; ``ranks`` are left beside others.

    Parts of a sequence share weights too: FSDP's count may have them. Ranks that share may stand in several groups,
    ranks that are copies of each other are all.
    """
    if axes.ranks is None:
        return
    text, count = record.text("dp_shard_or_fsdp"), ranks * cp
    if axes.kind == "ddp" and not text.lower().startswith("none") and axes.ranks not in (ranks, count):
        raise ValueError(f"dp_shard_or_fsdp is {text}, expected ddp:{ranks}, the ranks left of n_gpus")
    if count % axes.ranks:
        raise ValueError(f"dp_shard_or_fsdp is {text}, expected a count that divides the {count} ranks left of n_gpus")


def _says_layout(record: Record, stack: Stack, axes: Axes, devices: int) -> bool:
    """Returns whether the row says how several devices are used, or its software leaves no choice or has a default."""
    whole = axes.kind.endswith("fsdp") or axes.kind == "zero3"
    named = bool(record.text("dp_shard_or_fsdp")) and (axes.ranks == devices or (whole and axes.ranks is None))
    divides = not stack.runs.axes or not {"tp", "pp"}.isdisjoint(chain.from_iterable(stack.runs.axes.values()))
    return named or bool(record.text("tp") or record.text("pp") or stack.undivided) or not divides


def _offload(record: Record, axes: Axes) -> Offload:
    """Returns what leaves the device: with FSDP all, else the optimizer's state alone, unless it goes to NVMe.

    ZeRO-3 to NVMe moves all (Rajbhandari et al., 2021, arXiv 2104.07857, table 2). Where the column is empty, the
    processor's own Adam (DeepSpeedCPUAdam) has its state beside it.
    """
    said, whole = offloaded(record.text("cpu_offload")), axes.kind.startswith("fsdp")
    if said is None and "cpu" in record.text("optimizer").lower():
        said = "optimizer"
    if said == "nvme":
        return "all-nvme" if whole or axes.kind == "zero3" else "optimizer-nvme"
    if isinstance(said, str):
        return said
    return "none" if not said else "all" if whole else "optimizer"


def _sequence_parallel(record: Record) -> bool | None:
    """Returns whether tensor parallelism splits activations between its regions; None where the row does not say."""
    names = ("sequence_parallel", "sequence-parallel")
    return next((flag(name, record.notes[name]) for name in names if record.notes.get(name)), None)


def _micro_batch(record: Record, pp: int) -> int:
    """Returns the sequences of a micro batch where the row names none: one rank's batch over the stages."""
    local = re.search(r"local batch (\d+)", record.text("notes"))
    return max(1, int(local[1]) // pp) if local else 1


def _virtual_stages(record: Record, pp: int) -> int:
    if pp == 1:
        return 1
    for name in ("vp", "interleave", "num-virtual-stages-per-pipeline-rank"):
        if value := note_number(record, name):
            return max(1, int(value))
    if each := note_number(record, "num-layers-per-virtual-pipeline-stage"):
        layers = record.whole("n_layers") if record.model is None else record.model.layers
        return max(1, int(layers / pp / each))
    return 1
