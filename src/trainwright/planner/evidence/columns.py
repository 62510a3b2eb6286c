"""Turns a published row into a question to the planner: shape, workload, layout, and what had to be assumed.

Only what the row says is used: its columns, and the settings in its notes. Where a source does not print a setting the
framework's default is taken, which the stack's data file names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple

from trainwright.planner.evidence.rows import LARGEST, Record, number
from trainwright.spec.model import Experts, LatentAttention, ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    Adapter,
    Offload,
    OptimizerName,
    ParallelPlan,
    Precision,
    Recompute,
    States,
    Workload,
)

GPT2_VOCABULARY = 50257
BERT_VOCABULARY = 30522
LLAMA_VOCABULARY = 32000
"""Of Llama and Llama 2 (arXiv 2302.13971, section 2.1)."""
PRECISIONS: dict[Precision, tuple[str, ...]] = {
    "nvfp4": ("nvfp4", "fp4"),
    "fp8": ("fp8",),
    "bf16": ("nf4", "int4", "int8", "bf16", "bfloat16"),
    "fp16": ("fp16", "float16", "half"),
    "tf32": ("tf32",),
    "fp32": ("fp32", "float32"),
}
"""Words of the dtype column, the narrowest first: what products are computed in; quantised weights are dequantised."""
OPTIMIZERS: dict[str, OptimizerName] = {"muon": "muon", "sgd": "sgd", "adafactor": "adafactor"}
TARGETS = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "c_attn": "query",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
}
MLA = LatentAttention(query_rank=1536, kv_rank=512, rope_size=64, value_size=128)
"""DeepSeek-V3's (arXiv 2412.19437, section 4.2), which rows with latent attention share unless they say otherwise."""
ZERO_STAGES: dict[str, Literal[0, 1, 2, 3]] = {"ddp": 0, "zero0": 0, "zero1": 1, "zero2": 2}
FILLED = 4
"""Micro batches for each pipeline stage where a row gives no batch."""
NODE_DEVICES, BIG_DEVICES = 8, 64
"""Devices where a row does not say: one node, and eight for what its source calls big."""


class Axes(NamedTuple):
    """What ``dp_shard_or_fsdp`` says: a kind (ddp, zero0..3, fsdp) and over how many ranks, None where it does not."""

    kind: str
    ranks: int | None


def is_gated(record: Record) -> bool:
    """Returns True where the feed-forward has a gate: Llama-like shapes, their mixtures, and rows with ``swiglu``."""
    arch, notes = record.text("arch"), record.notes
    if "swiglu" in notes or arch.startswith("llama"):
        return True
    return arch == "moe" and "transformer-impl" not in notes and "untie-embeddings-and-output-weights" not in notes


def vocabulary(record: Record, *, tp: int) -> int:
    """Returns the number of rows of the embedding; GPT-2's, padded as Megatron pads it, where none is given."""
    printed = record.number("vocab") or _note_number(record, "vocab-size")
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


def model_of(record: Record) -> ModelSpec:
    """Returns the network: the one that the row names, or the one that its columns and notes describe.

    Raises:
        ValueError: a size is missing or impossible.
    """
    tunes = record.notes.get("task") == "finetune"
    if (known := record.model) is not None:
        # Training makes sequences longer, and tuning puts a classifier's head on an encoder.
        classes = 2 if known.kind == "encoder" and tunes else known.classes
        return replace(known, context_tokens=max(known.context_tokens, record.whole("seq_len")), classes=classes)
    layers, width, arch = record.whole("n_layers"), record.whole("hidden"), record.text("arch")
    heads = record.whole("n_heads", max(1, width // 128))
    llama, bert = is_gated(record), arch == "bert"
    usual_width = width * 8 // 3 if llama else 4 * width
    tied = record.text("tied_embeddings")
    rope = llama or "rope" in record.notes.get("position-embedding-type", "") or arch.startswith(("gpt(phi", "gpt(fal"))
    model = ModelSpec(
        family="bert" if bert else "transformer",
        kind="encoder" if bert else "decoder",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=record.whole("n_kv_heads", heads),
        head_size=int(_note_number(record, "head_dim") or width // heads),
        ffn_width=int(_note_number(record, "dense_ffn") or record.whole("ffn_hidden", usual_width)),
        vocabulary=vocabulary(record, tp=record.whole("tp", 1)),
        context_tokens=512 if bert else record.whole("seq_len"),
        tied=tied != "no" if tied else not llama,
        gated=llama,
        norm="rmsnorm" if llama else "layernorm",
        norm_epsilon=1e-5,
        positions="rope" if rope else "learned",
        rope_theta=1e4,
        bias=not llama and "MPT" not in arch and "falcon" not in arch,
        activation="silu" if llama else "gelu",
        segments=2 if bert else 0,
        classes=2 if bert and tunes else 0,
        experts=_experts(record),
        further_layers=int(_note_number(record, "mtp-num-layers") or 0),
        latent=MLA if "MLA" in record.notes or "multi-latent-attention" in record.notes else None,
    )
    if problems := model.problems():
        raise ValueError("; ".join(problems))
    return model


def _experts(record: Record) -> Experts | None:
    count = _note_number(record, "experts") or _note_number(record, "num-experts")
    if record.text("arch") != "moe":
        if count:
            raise ValueError("experts in an architecture that is called dense: other layers than the columns describe")
        return None
    if not count or not ("topk" in record.notes or "moe-router-topk" in record.notes):
        raise ValueError("a mixture of experts whose experts or top-k the row does not say")
    width = int(_note_number(record, "moe-ffn-hidden-size") or record.whole("ffn_hidden", record.whole("hidden")))
    shared = int(_note_number(record, "moe-shared-expert-intermediate-size") or 0)
    return Experts(
        count=int(count),
        active=int(_note_number(record, "topk") or _note_number(record, "moe-router-topk") or 2),
        ffn_width=width,
        shared_ffn_width=shared or int(_note_number(record, "shared") or 0) * width,
        dense_layers=_dense_layers(record),
    )


def _dense_layers(record: Record) -> int:
    """Returns the number of layers before the first with experts; ``([0]*4+[1]*9)`` is Megatron's way to say 4."""
    if match := re.match(r"\(\[0\]\*(\d+)", record.notes.get("moe-layer-freq", "")):
        return int(match[1])
    return int(_note_number(record, "dense_layers") or 0)


def _note_number(record: Record, name: str) -> float | None:
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


def workload_of(record: Record, stack: Stack, parallel: ParallelPlan) -> Workload:
    """Returns the work of one step.

    Raises:
        ValueError: an unknown precision, or a sequence that is no number.
    """
    sequence = record.whole("seq_len")
    ranks = parallel.dp_replicate * parallel.dp_shard
    filled = 1 if parallel.pp == 1 else FILLED * parallel.pp
    accumulated = int(_note_number(record, "grad_accum") or _note_number(record, "micro_num") or filled)
    batch = record.whole("global_batch", parallel.micro_batch_sequences * ranks * accumulated)
    recompute = record.text("activation_checkpointing") or _default_recompute(record, stack, parallel)
    framework, optimizer = record.notes.get("framework_config", ""), record.text("optimizer").lower()
    return Workload(
        sequence_tokens=sequence,
        batch_tokens=sequence * batch,
        steps=1,
        precision=precision_of(record, stack),
        optimizer=optimizer_of(record),
        recompute=recompute_of(recompute),
        states=states_of(record, stack),
        moments="int8" if "8bit" in optimizer or "8-bit" in optimizer else None,
        adapter=adapter_of(record),
        fused_attention=is_fused(record, stack),
        expert_imbalance=1.0 if "force-balanced" in record.text("notes") else None,
        fused_loss="liger" in framework or "cross-entropy-loss-fusion" in record.notes,
    )


def is_fused(record: Record, stack: Stack) -> bool:
    """Returns True where attention keeps its scores out of memory."""
    whole = ("unfused", "local")
    if record.notes.get("attention-backend") in whole or record.notes.get("transformer-impl") in whole:
        return False
    word = record.text("flash_attention")
    return word != "no" if word else stack.fused_attention


def _default_recompute(record: Record, stack: Stack, parallel: ParallelPlan) -> str:
    """Returns the framework's recomputation where the row names none."""
    tunes = record.notes.get("task", "pretrain") != "pretrain"
    where = stack.memory.recomputes
    return "full" if where == "always" or (where == "tuned_shards" and tunes and parallel.dp_shard > 1) else "none"


def recompute_of(text: str) -> Recompute:
    """Returns the recomputation that a column names: all, nothing, or in any other words a part."""
    if text.lower() in ("full", "yes", "true", "uniform", "all"):
        return "full"
    return "none" if text.lower() in ("none", "no", "false", "off") else "selective"


def optimizer_of(record: Record) -> OptimizerName:
    """Returns the optimizer; AdamW where the row does not say."""
    text = record.text("optimizer").lower()
    return next((name for part, name in OPTIMIZERS.items() if part in text), "adamw")


def precision_of(record: Record, stack: Stack) -> Precision:
    """Returns the format of matrix products; the framework's usual one where the row names none.

    Raises:
        ValueError: a dtype that is not known.
    """
    text = record.text("dtype").lower() or stack.precision
    known = next((name for name, words in PRECISIONS.items() if any(word in text for word in words)), None)
    if known is None:
        raise ValueError(f"dtype is {text}, expected one of {', '.join(chain.from_iterable(PRECISIONS.values()))}")
    return known


def states_of(record: Record, stack: Stack) -> States:
    """Returns the formats in which trained weights and their states are kept."""
    notes = record.notes
    if "bf16-true" in notes or notes.get("fsdp_mixed_precision") == "PURE":
        return "pure"
    if "flag blank" in record.text("notes"):
        # Accelerate's FSDP keeps trained weights in fp32 where the trainer's flag asks for mixed precision; on one
        # device the weights stay as they were loaded.
        mixed = "true" in (notes.get("bf16flag", "").lower(), notes.get("fp16flag", "").lower())
        return "fp32" if mixed and record.text("dp_shard_or_fsdp").startswith("fsdp") else "pure"
    return stack.states


def adapter_of(record: Record) -> Adapter | None:
    """Returns the adapters on frozen weights, where the row's task has them."""
    task, quant = record.notes.get("task", ""), record.notes.get("quant", "")
    if not (any(word in task for word in ("lora", "peft:")) or record.notes.get("lora") == "True"):
        return None
    nf4 = "nf4" in task or "nf4" in quant or task == "qlora"
    rank = int(_note_number(record, "lora_r") or _note_number(record, "rank") or 8)
    named = tuple(dict.fromkeys(TARGETS[name] for name in record.notes.get("targets", "").split() if name in TARGETS))
    trained = _note_number(record, "trainable")
    return Adapter(
        method=task.removeprefix("peft:") if task.startswith("peft:") else "lora",
        rank=rank,
        targets=named or ("query", "value"),
        parameters=int(trained) if trained else None,
        frozen="nf4" if nf4 else "int4" if "gptq" in task else "bf16",
    )


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
        ValueError: a size is no positive whole number, or there are fewer devices than the layout needs.
    """
    tp, pp, cp = (record.whole(name, 1) for name in ("tp", "pp", "cp"))
    axes = axes_of(record, stack)
    inner = tp * pp * cp
    usual = BIG_DEVICES if "CI_BIG" in record.notes else NODE_DEVICES
    devices = record.whole("n_gpus", inner * (axes.ranks or max(1, usual // inner)))
    if record.notes.get("config", "").endswith(".yaml"):
        devices = 1  # LitGPT's recipes run on one device; the column counts the machine's
    if devices < inner:
        raise ValueError(f"n_gpus is {devices}, fewer than tp x pp x cp = {inner}")
    ranks = devices // inner
    shard = ranks if axes.ranks is None else min(axes.ranks, ranks)
    sharded = axes.kind not in ("ddp", "zero0")
    virtual = _virtual_stages(record, pp)
    divided = record.notes.get("sequence_parallel") or record.notes.get("sequence-parallel")
    return ParallelPlan(
        dp_shard=shard if sharded else 1,
        dp_replicate=max(1, ranks // shard) if sharded else ranks,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=record.whole("ep", 1),
        micro_batch_sequences=record.whole("micro_batch", _micro_batch(record, pp)),
        compile=record.text("compile") not in ("", "no"),
        zero_stage=ZERO_STAGES.get(axes.kind, 3),
        sequence_parallel=stack.sequence_parallel if divided is None else divided.lower() in ("yes", "true"),
        schedule="interleaved" if virtual > 1 else "1f1b",
        virtual_stages=virtual,
        offload=_offload(record, axes),
    ), devices


def _offload(record: Record, axes: Axes) -> Offload:
    """Returns what leaves the device: with FSDP all, else the optimizer's state alone, unless it goes to NVMe.

    ZeRO-3 to NVMe moves all (Rajbhandari et al., 2021, arXiv 2104.07857, table 2).
    """
    word, whole = record.text("cpu_offload").lower(), axes.kind.startswith("fsdp")
    if word == "nvme":
        return "all-nvme" if whole or axes.kind == "zero3" else "optimizer-nvme"
    return "none" if word != "yes" else "all" if whole else "optimizer"


def _micro_batch(record: Record, pp: int) -> int:
    """Returns the sequences of a micro batch where the row names none: one rank's batch over the stages."""
    local = re.search(r"local batch (\d+)", record.text("notes"))
    return max(1, int(local[1]) // pp) if local else 1


def _virtual_stages(record: Record, pp: int) -> int:
    if pp == 1:
        return 1
    for name in ("vp", "interleave", "num-virtual-stages-per-pipeline-rank"):
        if value := _note_number(record, name):
            return max(1, int(value))
    if each := _note_number(record, "num-layers-per-virtual-pipeline-stage"):
        layers = record.whole("n_layers") if record.model is None else record.model.layers
        return max(1, int(layers / pp / each))
    return 1
