"""Turns what a published row says of its training into a workload: precision, states, recomputation, adapters.

Words that are not understood are refused: a guess would be a prediction of another run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import cast, get_args

from trainwright.planner.counts.adapters import ALL_LINEAR, TARGETS, adaptable
from trainwright.planner.counts.lengths import spread_of
from trainwright.planner.evidence.columns import model_of, note_number, note_whole
from trainwright.planner.evidence.notes import (
    CHUNKED,
    IN_BACKWARD,
    OFFLOADED,
    PAGED,
    PURE,
    RANKS,
    loss_of,
    refuse_unknown,
    says,
)
from trainwright.planner.evidence.rows import Record
from trainwright.planner.evidence.words import flag, fused, optimizer_of, recompute_of, switch, trains
from trainwright.planner.plan.question import implied_kernels
from trainwright.planner.plan.sizes import EXAMPLES
from trainwright.spec.stack import Stack
from trainwright.spec.workload import (
    Adapter,
    Frozen,
    MomentDtype,
    ParallelPlan,
    Precision,
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
PEFT_RANK, PEFT_TARGETS = 8, ("query", "value")
"""Where a row does not say: LoraConfig's default, and PEFT's targets for Llama (huggingface/peft@00073fe85c:
src/peft/tuners/lora/config.py, src/peft/utils/constants.py)."""
_WIDE = re.compile(r"(?:activations|residuals)[ _]?[=:][ _]?fp32", re.IGNORECASE)
_FP4 = re.compile(r"(?<![a-z])fp4")
_INTEGERS = re.compile(r"nf4|int[48]", re.IGNORECASE)
FROZEN: Mapping[Frozen, tuple[str, ...]] = {
    "int8": ("int8", "8bit"),
    "int4": ("gptq", "int4", "awq", "hqq"),
    "nf4": ("nf4", "fp4", "qlora", "qdora", "4bit"),
}
"""Words for quantised weights; a method that has several widths (``gptq-int8``) after the width that is not usual."""
UNQUANTISED = ("", "none", "no", "false", "off", "n/a", "bf16", "fp16", "fp32")
"""Words for weights that are not quantised."""
FILLED = 4
"""Micro batches for each pipeline stage where a row gives no batch."""


def workload_of(record: Record, stack: Stack, parallel: ParallelPlan) -> Workload:
    """Returns the work of one step.

    Raises:
        ValueError: an unknown precision, a setting that is not understood, or a sequence that is no number.
    """
    refuse_unknown(record.notes)
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
    paged, at_once = says(PAGED, said), says(IN_BACKWARD, said)
    if at_once and record.text("micro_batch") and (count := batch // (ranks * parallel.micro_batch_sequences)) > 1:
        expected = "one: gradients of several are summed before they are used"
        raise ValueError(f"updates in the backward pass with {count} micro batches of a step, expected {expected}")
    return Workload(
        sequence_tokens=sequence,
        batch_tokens=sequence * batch,
        steps=1,
        precision=precision_of(record, stack),
        optimizer=optimizer_of(record.text("optimizer")),
        recompute=recompute_of(recompute),
        states=states_of(record, stack),
        moments=_moments(record, stack, paged=paged),
        adapter=adapter_of(record),
        **implied_kernels(stack, attention=is_fused(record), loss=_is_chunked(record)),
        expert_imbalance=1.0 if "force-balanced" in record.text("notes") else None,
        update_in_backward=at_once,
        paged_moments=paged,
        activation_offload=says(OFFLOADED, said),
        example_tokens=mean,
        example_spread=0.0 if mean is None else spread_of(mean, sequence, EXAMPLES),
    )


def _padded_mean(record: Record, longest: int) -> int | None:
    """Returns the mean length of examples that are padded, by ``packing=off``; else None.

    Where no ``mean_len`` is said it is taken as the longest, which says enough of memory.

    Raises:
        ValueError: a word for packing that is not known, or a mean that is none.
    """
    padded = flag("packing", record.notes.get("packing", "")) is False
    return mean_tokens(record, longest) or longest if padded else None


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
    if re.search(r"8[ _-]?bit", optimizer):
        return "int8"
    if paged:
        return "fp32"
    return stack.moments if not optimizer and trains(record.notes).tunes else None


def _refuse_unplanned(record: Record, stack: Stack) -> None:
    """Raises ValueError for a setting that changes memory and time much, and that no plan has."""
    precision, quant, dtype = precision_of(record, stack), record.notes.get("quant", "").lower(), record.text("dtype")
    if trains(record.notes).method is None:
        if quant not in UNQUANTISED and quant not in (precision, dtype.lower()):
            raise ValueError(f"quant is {quant}, expected none where all weights are trained")
        if _INTEGERS.search(dtype) and not any(each in dtype.lower() for each in ("bf16", "fp16", "fp32")):
            raise ValueError(f"dtype is {dtype}, expected the format of products where all weights are trained")
    if _WIDE.search(record.text("notes")) and precision not in ("fp32", "tf32"):
        raise ValueError("activations are fp32, expected the format of products: plans keep no wider ones between them")


def _is_chunked(record: Record) -> bool | None:
    """Returns whether the loss is in chunks, or in one kernel; None where the row does not say."""
    notes, loss = record.text("notes"), loss_of(record.notes)
    if switch(record.notes, "cross-entropy-loss-fusion"):
        return True
    if loss is not None:
        return loss
    return says(CHUNKED, notes) if CHUNKED.search(notes) else None


def is_fused(record: Record) -> bool | None:
    """Returns whether attention keeps its scores out of memory; None where the row does not say.

    Raises:
        ValueError: a word for attention, or for Megatron's implementation of layers, that is not known.
    """
    backend, layers = record.notes.get("attention-backend", ""), record.notes.get("transformer-impl", "")
    if layers not in ("", "local", "transformer_engine"):
        raise ValueError(f"transformer-impl is {layers}, expected local or transformer_engine")
    if layers == "local" or (backend != "auto" and fused(backend, "attention-backend") is False):
        return False
    return fused(record.text("flash_attention"))


def _default_recompute(record: Record, stack: Stack, parallel: ParallelPlan) -> str:
    """Returns the framework's recomputation where the row names none."""
    usual = stack.usual.get("recompute")
    if usual is None or (usual.where == "tuned_shards" and not (trains(record.notes).tunes and parallel.sharing > 1)):
        return "none"
    return usual.value


def precision_of(record: Record, stack: Stack) -> Precision:
    """Returns the format of matrix products; the framework's usual one where the row names none.

    Raises:
        ValueError: a dtype that is not known, or ``fp4`` beside adapters where nothing says whose it is.
    """
    text = record.text("dtype").lower() or stack.precision
    if _FP4.search(text) and trains(record.notes).method is not None:
        if _quantised(record, _FP4.sub("", text)) is None:
            raise ValueError(f"dtype is {text}, expected nvfp4 of products, or quant=fp4 in notes of frozen weights")
        text = _FP4.sub("nf4", text)
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
    if record.notes.get("fsdp_mixed_precision") == "PURE" or says(PURE, said):
        return "pure"
    return stack.states


def adapter_of(record: Record) -> Adapter | None:
    """Returns the adapters on frozen weights, where the row's task has them.

    Raises:
        ValueError: the task, a target or the quantisation is no word that is known, or the rank no whole number.
    """
    method = trains(record.notes).method
    if method is None:
        return None
    return Adapter(
        method=method,
        rank=note_whole(record, *RANKS) or PEFT_RANK,
        targets=_targets(record) or PEFT_TARGETS,
        parameters=note_whole(record, "trainable"),
        frozen=_frozen(record),
    )


def _targets(record: Record) -> tuple[str, ...]:
    """Returns the matrices that adapters stand beside; empty where the row does not say."""
    named = [name.rpartition(".")[2] for name in re.findall(r"[\w.-]+", record.notes.get("targets", "").lower())]
    if named and all(name in ALL_LINEAR for name in named):
        return adaptable(model_of(record))
    for name in named:
        if name not in TARGETS:
            raise ValueError(f"targets has {name}, expected all-linear or some of {', '.join(TARGETS)}")
    targets = tuple(dict.fromkeys(chain.from_iterable(TARGETS[name] for name in named)))
    wide = any(len(TARGETS[name]) > 1 for name in named)
    return tuple(name for name in targets if name in adaptable(model_of(record))) if wide else targets


def _frozen(record: Record) -> Frozen:
    """Returns how frozen weights are kept: as task, quantisation or dtype say, else in 16 bits.

    ``nvfp4`` in the dtype is what products are computed in, no quantised weight.
    """
    frozen, quant = _quantised(record, record.text("dtype")), record.notes.get("quant", "").lower()
    if frozen is None and quant not in UNQUANTISED:
        known = ", ".join(chain.from_iterable(FROZEN.values()))
        raise ValueError(f"quant is {quant}, expected none or one with {known}")
    return frozen or "bf16"


def _quantised(record: Record, dtype: str) -> Frozen | None:
    """Returns the format of quantised weights that task, quantisation or dtype name; None where they name none."""
    said = f"{record.notes.get('task', '')} {record.notes.get('quant', '')} {re.sub('(?:nv|mx)fp4', '', dtype.lower())}"
    said = said.lower().replace("-bit", "bit")
    return next((frozen for frozen, words in FROZEN.items() if any(word in said for word in words)), None)
