"""Settings in a row's notes: which are understood, by which words, and which nobody reads.

A setting of the documented vocabulary has a value that is known, or its row is refused by that word. Of others, such as
hold one word, the names are kept: a prediction says what it did not use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from trainwright.planner.evidence.words import UnknownWord, flag, trains
from trainwright.spec.workload import States

CHUNKED = re.compile(
    r"(?i)liger|chunked[ _-](?:loss|ce|cross|nll)|linear[ _-]?cross[ _-]?entropy|cut[ _-]cross|fused[ _-]linear"
)
PURE = re.compile(
    r"pure[ _-]bf16|bf16[ _-]true|bf16[ _-](?:optimizer|optim|adam|moments|states)|no (?:fp32 )?master", re.IGNORECASE
)
IN_BACKWARD = re.compile(r"optimizer[ _-]in[ _-](?:bwd|backward)|in[ _-]backward", re.IGNORECASE)
OFFLOADED = re.compile(r"activations?[ _-](?:cpu[ _-])?offload(?:ing)?|offload(?:ing)?[ _-]activations?", re.IGNORECASE)
PAGED = re.compile(r"(?<![a-z])paged[ _-]?(?:adamw?|optimi[sz]er|moments)", re.IGNORECASE)
SWITCHES = (CHUNKED, PURE, IN_BACKWARD, OFFLOADED, PAGED)
"""Words that switch something on where they stand, unless they are denied."""
_DENIED_BEFORE = re.compile(r"\b(?:no|not|without)[ _-]$", re.IGNORECASE)
_DENIED_BEHIND = re.compile(r"\w*\s*[=:]\s*(?:no|false|off|none|0)\b", re.IGNORECASE)
LOSSES: Mapping[str, bool] = {
    **dict.fromkeys(("chunked", "fused", "liger", "linear_cross_entropy", "cut_cross_entropy", "cce"), True),
    **dict.fromkeys(("plain", "full", "unfused", "default", "ce", "cross_entropy"), False),
}
"""Words for ``loss``, and whether it keeps no whole logits."""
MEMORY = ("reserved", "allocated", "active", "nvidia-smi", "incl. context", "analytic")
"""Words by which memory is defined; *active* is what is allocated, and what waits for another stream."""
_WORDS: Mapping[str, tuple[str, ...]] = {
    "fsdp_mixed_precision": ("default", "pure"),
    "position-embedding-type": ("rope", "none", "learned_absolute", "learned"),
}
_NUMBERS = (
    *("grad_accum", "micro_num", "experts", "topk", "shared", "dense_layers", "dense_ffn", "head_dim", "vocab-size"),
    *("num-experts", "moe-router-topk", "moe-ffn-hidden-size", "moe-shared-expert-intermediate-size"),
    *("mtp-num-layers", "vp", "interleave", "num-virtual-stages-per-pipeline-rank"),
    "num-layers-per-virtual-pipeline-stage",
)
_NO_NUMBER = ("none", "n/a")
_STATES = ("weights", "weight_dtype", "master_weights", "param_dtype", "params_dtype", "model_dtype")
"""Names that say a format and not whose: of the weights that are trained, of products, or of frozen ones."""
RANKS = ("lora_r", "rank", "lora_rank")
"""Names for the rank of adapters."""
_OF_ADAPTERS = (*RANKS, "targets", "trainable")
_READ = frozenset(
    (
        *_WORDS,
        *_NUMBERS,
        *_OF_ADAPTERS,
        *("task", "lora", "quant", "states", "loss", "memory"),
        *("mem", "packing", "mean_len", "activations", "sequence_parallel", "sequence-parallel", "swiglu", "MLA"),
        *("multi-latent-attention", "cross-entropy-loss-fusion", "attention-backend", "transformer-impl", "release"),
        *("framework_config", "moe-layer-freq", "untie-embeddings-and-output-weights", "vocab", "V"),
    )
)
_COLUMNS = frozenset(
    (
        *("framework", "arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "tied_embeddings"),
        *("seq_len", "gpu", "n_gpus", "dtype", "dp_shard_or_fsdp", "tp", "pp", "cp", "ep", "micro_batch"),
        *("global_batch", "activation_checkpointing", "cpu_offload", "compile", "flash_attention", "oom"),
    )
)
"""What has a column of its own, and no second place in the notes."""
_SETTING = re.compile(r"[A-Za-z][\w-]*")


def says(words: re.Pattern[str], settings: str) -> bool:
    """Returns True where settings have one of the words and do not deny it: ``no liger``, ``liger=false``."""
    return any(
        not _DENIED_BEFORE.search(settings[: match.start()]) and not _DENIED_BEHIND.match(settings[match.end() :])
        for match in words.finditer(settings)
    )


def loss_of(notes: Mapping[str, str]) -> bool | None:
    """Returns whether ``loss`` says that whole logits are never kept; None where it is not said.

    Raises:
        ValueError: another word.
    """
    said = notes.get("loss", "")
    word = re.sub(r"[\s-]+", "_", said.strip().lower())
    if not word:
        return None
    if CHUNKED.search(word):
        return True
    if word not in LOSSES:
        raise UnknownWord("loss", said, f"one of {', '.join(LOSSES)}", LOSSES)
    return LOSSES[word]


def refuse_unknown(notes: Mapping[str, str]) -> None:
    """Raises ValueError for a setting of the documented vocabulary whose value is not understood."""
    loss_of(notes)
    for name, value in notes.items():
        if not value:
            continue
        if _SETTING.fullmatch(re.sub(r"\s", "_", name)) and any(words.search(name) for words in SWITCHES):
            flag(name, value)
        if name in _STATES:
            expected = f"states={', '.join(get_args(States))} of weights that are trained"
            raise UnknownWord(name, value, expected, get_args(States))
        if name in _WORDS and value.lower() not in _WORDS[name]:
            raise UnknownWord(name, value, f"one of {', '.join(_WORDS[name])}", _WORDS[name])
        if name in ("mem", "memory") and not any(word in value.lower() for word in MEMORY):
            raise UnknownWord(name, value, f"one of {', '.join(MEMORY)}", MEMORY)
        if name in _NUMBERS and value.lower() not in _NO_NUMBER and not value[0].isdecimal():
            raise ValueError(f"{name} is {value}, expected a number")


def refuse_columns(columns: Mapping[str, str], notes: Mapping[str, str]) -> None:
    """Raises ValueError for a setting that has a column, where the notes say something else than the column."""
    for name in _COLUMNS & notes.keys():
        if (value := notes[name]) and value.lower() != (column := columns.get(name, "")).lower():
            seen = f"{name} is {value} in notes" + (f" and {column} in its column" if column else "")
            raise ValueError(f"{seen}, expected it in its column alone")


def unused(notes: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the settings of one word that nobody reads, and counts that are more than a number (``vp=4 (2)``).

    A prediction is that of a run without them; so are settings of adapters where all weights are trained.
    """
    adapts = trains(notes).method is not None
    return tuple(
        name
        for name, value in notes.items()
        if (name in _OF_ADAPTERS and value and not adapts)
        or (name in _NUMBERS and value[:1].isdecimal() and not re.fullmatch(r"[\d.e+]+", value))
        or (
            name not in _READ
            and _SETTING.fullmatch(name)
            and _SETTING.fullmatch(value)
            and not any(words.search(name) for words in SWITCHES)
        )
    )
