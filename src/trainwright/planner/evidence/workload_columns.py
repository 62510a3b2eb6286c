"""Turns what a published row says of its training into a workload: precision, states, recomputation, adapters.

Words that are not understood are refused: a guess would be a prediction of another run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import cast, get_args

from trainwright.planner.counts.lengths import spread_of
from trainwright.planner.evidence.columns import note_number
from trainwright.planner.evidence.rows import Record
from trainwright.planner.plan.sizes import EXAMPLES
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    Adapter,
    Frozen,
    MomentDtype,
    OptimizerName,
    ParallelPlan,
    Precision,
    Recompute,
    States,
    Workload,
)

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
ALL_WEIGHTS = frozenset(
    ("", "pretrain", "train", "full", "full-ft", "finetune", "fine-tune", "finetuning", "fine-tuning", "sft", "cpt")
)
"""Words for training all weights."""
ADAPTED: Mapping[str, str] = {
    **dict.fromkeys(("lora", "qlora", "gptq-lora", "lora-gptq", "dora", "qdora", "peft"), "lora"),
    **dict.fromkeys(("adapter", "adapter_v2", "llama-adapter"), "adaptionprompt"),
}
"""Words for training a few weights beside frozen ones, each with its method in PEFT's words."""
_CHUNKED = re.compile(
    r"(?i)liger|chunked[ _-](?:loss|ce|cross|nll)|linear[ _-]?cross[ _-]?entropy|cut[ _-]cross|fused[ _-]linear"
)
_PURE = re.compile(
    r"pure[ _-]bf16|bf16[ _-]true|bf16[ _-](?:optimizer|optim|adam|moments|states)|no (?:fp32 )?master", re.IGNORECASE
)
_IN_BACKWARD = re.compile(r"optimizer[ _-]in[ _-](?:bwd|backward)|in[ _-]backward", re.IGNORECASE)
_OFFLOADED = re.compile(
    r"activations?[ _-](?:cpu[ _-])?offload(?:ing)?|offload(?:ing)?[ _-]activations?", re.IGNORECASE
)
_PAGED = re.compile(r"(?<![a-z])paged[ _-]?(?:adamw?|optimi[sz]er|moments)", re.IGNORECASE)
_WIDE = re.compile(r"(?:activations|residuals)[ _]?[=:][ _]?fp32", re.IGNORECASE)
_DENIED_BEFORE = re.compile(r"\b(?:no|not|without)[ _-]$", re.IGNORECASE)
_DENIED_BEHIND = re.compile(r"\w*\s*[=:]\s*(?:no|false|off|none|0)\b", re.IGNORECASE)
FROZEN: Mapping[Frozen, tuple[str, ...]] = {
    "int8": ("int8", "8bit"),
    "int4": ("gptq", "int4", "awq", "hqq"),
    "nf4": ("nf4", "fp4", "qlora", "qdora", "4bit"),
}
"""Words for quantised weights; a method that has several widths (``gptq-int8``) after the width that is not usual."""
PACKED: Mapping[str, bool] = {
    **dict.fromkeys(("on", "true", "yes"), True),
    **dict.fromkeys(("off", "false", "no", "none"), False),
}
"""Words for whether examples fill sequences."""
FILLED = 4
"""Micro batches for each pipeline stage where a row gives no batch."""


def workload_of(record: Record, stack: Stack, parallel: ParallelPlan) -> Workload:
    """Returns the work of one step.

    Raises:
        ValueError: an unknown precision, or a sequence that is no number.
    """
    sequence = record.whole("seq_len")
    mean = _padded_mean(record, sequence)
    ranks = parallel.dp_replicate * parallel.dp_shard
    filled = 1 if parallel.pp == 1 else FILLED * parallel.pp
    accumulated = int(note_number(record, "grad_accum") or note_number(record, "micro_num") or filled)
    batch = record.whole("global_batch", parallel.micro_batch_sequences * ranks * accumulated)
    recompute = record.text("activation_checkpointing") or _default_recompute(record, stack, parallel)
    _refuse_unplanned(record, stack)
    optimizer = record.text("optimizer").lower()
    said = f"{optimizer} {record.text('notes')}"
    paged = says(_PAGED, said)
    return Workload(
        sequence_tokens=sequence,
        batch_tokens=sequence * batch,
        steps=1,
        precision=precision_of(record, stack),
        optimizer=optimizer_of(record),
        recompute=recompute_of(recompute),
        states=states_of(record, stack),
        moments=_moments(record, stack, paged=paged),
        adapter=adapter_of(record),
        fused_attention=is_fused(record, stack),
        expert_imbalance=1.0 if "force-balanced" in record.text("notes") else None,
        update_in_backward=says(_IN_BACKWARD, said),
        paged_moments=paged,
        activation_offload=says(_OFFLOADED, said),
        example_tokens=mean,
        example_spread=0.0 if mean is None else spread_of(mean, sequence, EXAMPLES),
        fused_loss="cross-entropy-loss-fusion" in record.notes or _is_chunked(record, stack),
    )


def _padded_mean(record: Record, longest: int) -> int | None:
    """Returns the mean length of examples that are padded, by ``packing=off``; else None.

    Where no ``mean_len`` is said it is taken as the longest, which says enough of memory.

    Raises:
        ValueError: a word for packing that is not known, or a mean that is none.
    """
    word = record.notes.get("packing", "on").lower()
    if word not in PACKED:
        raise ValueError(f"packing is {word}, expected one of {', '.join(PACKED)}")
    return None if PACKED[word] else mean_tokens(record, longest) or longest


def mean_tokens(record: Record, longest: int) -> int | None:
    """Returns the mean length of the row's sequences where its notes say it (``mean_len=340``).

    Raises:
        ValueError: it is no whole number, or longer than the longest sequence.
    """
    text = record.notes.get("mean_len")
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= longest:
        raise ValueError(f"mean_len is {text}, expected a whole number of tokens from 1 to seq_len ({longest})")
    return int(text)


def _moments(record: Record, stack: Stack, *, paged: bool) -> MomentDtype | None:
    """Returns the optimizer's moments: by its name, else as the framework has them in tuning."""
    optimizer = record.text("optimizer").lower()
    if "8bit" in optimizer or "8-bit" in optimizer:
        return "int8"
    if paged:
        return "fp32"
    return None if optimizer or record.notes.get("task", "pretrain") == "pretrain" else stack.moments


def says(words: re.Pattern[str], settings: str) -> bool:
    """Returns True where settings have one of the words and do not deny it: ``no liger``, ``liger=false``."""
    return any(
        not _DENIED_BEFORE.search(settings[: match.start()]) and not _DENIED_BEHIND.match(settings[match.end() :])
        for match in words.finditer(settings)
    )


def _refuse_unplanned(record: Record, stack: Stack) -> None:
    """Raises ValueError for a setting that changes memory and time much, and that no plan has."""
    if _WIDE.search(record.text("notes")) and precision_of(record, stack) not in ("fp32", "tf32"):
        raise ValueError("activations are fp32, expected the format of products: plans keep no wider ones between them")


def _is_chunked(record: Record, stack: Stack) -> bool:
    """Returns True where the loss is in chunks: as the row says, else as the software has it."""
    notes = record.text("notes")
    return says(_CHUNKED, notes) or (bool(stack.chunked_loss) and not _CHUNKED.search(notes))


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
    """Returns the formats in which trained weights and their states are kept.

    Raises:
        ValueError: the notes name formats that are not known.
    """
    word = record.notes.get("states")
    if word is not None:
        known = next((states for states in get_args(States) if states == word), None)
        if known is None:
            raise ValueError(f"states is {word}, expected one of {', '.join(get_args(States))}")
        return cast("States", known)
    said = f"{record.text('dtype')};{record.text('notes')}"
    if record.notes.get("fsdp_mixed_precision") == "PURE" or says(_PURE, said):
        return "pure"
    return stack.states


def adapter_of(record: Record) -> Adapter | None:
    """Returns the adapters on frozen weights, where the row's task has them.

    Raises:
        ValueError: the task or the quantisation is no word that is known.
    """
    method = _method(record.notes.get("task", ""))
    if method is None and record.notes.get("lora") != "True":
        return None
    rank = int(note_number(record, "lora_r") or note_number(record, "rank") or 8)
    named = tuple(dict.fromkeys(TARGETS[name] for name in record.notes.get("targets", "").split() if name in TARGETS))
    trained = note_number(record, "trainable")
    return Adapter(
        method=method or "lora",
        rank=rank,
        targets=named or ("query", "value"),
        parameters=int(trained) if trained else None,
        frozen=_frozen(record),
    )


def _frozen(record: Record) -> Frozen:
    """Returns how frozen weights are kept: as task, quantisation or dtype say, else in 16 bits.

    ``nvfp4`` in the dtype is what products are computed in, no quantised weight.
    """
    quantised = record.notes.get("quant", "").lower()
    dtype = record.text("dtype").lower().replace("nvfp4", "")
    said = f"{record.notes.get('task', '')} {quantised} {dtype}".lower().replace("-bit", "bit")
    for frozen, words in FROZEN.items():
        if any(word in said for word in words):
            return frozen
    if quantised not in ("", "none", "no", "bf16", "fp16"):
        known = ", ".join(word for words in FROZEN.values() for word in words)
        raise ValueError(f"quant is {quantised}, expected none or one with {known}")
    return "bf16"


def _method(task: str) -> str | None:
    """Returns how a task adapts frozen weights, in PEFT's words; None where it trains all weights."""
    if task.startswith("peft:"):
        return task.removeprefix("peft:")
    word = task.partition("(")[0].strip().lower()
    if word in ALL_WEIGHTS:
        return None
    if word not in ADAPTED:
        known = ", ".join(sorted({*ALL_WEIGHTS, *ADAPTED} - {""}))
        raise ValueError(f"task is {task}, expected one of {known}, or peft: and a method of PEFT")
    return ADAPTED[word]
