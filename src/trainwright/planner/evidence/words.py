"""Words by which a measured run says how it trained: flags, compilers, optimizers, recomputation, offload, its task.

Tables and runs in JSON are read by these alone. A word that is not understood is refused by name: a guess would be the
prediction of another run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from trainwright.spec.workload import OptimizerName, Recompute

FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("yes", "true", "on", "1"), True),
    **dict.fromkeys(("no", "false", "off", "none", "0"), False),
}
COMPILERS: Mapping[str, bool] = {
    **dict.fromkeys(
        ("torch.compile", "torch-compile", "inductor", "max-autotune", "reduce-overhead", "jit", "xla"), True
    ),
    **dict.fromkeys(("thunder", "thunder(sdpa,torchcompile)", "thunder(cat,nvfuser)"), True),
    "eager": False,
}
"""Words for what compiles a model's code, or that nothing does."""
ATTENTION: Mapping[str, bool] = {
    **dict.fromkeys(("sdpa", "flash", "fused", "cudnn", "xformers", "triton", "flex", "splash"), True),
    **dict.fromkeys(("fa1", "fa2", "fa3", "flash-1", "flash-2", "flash-3", "flash-attn", "flash-attention"), True),
    **dict.fromkeys(("flash-attn-2", "flash-attn-3", "flash-attention-2", "flash-attention-3"), True),
    **dict.fromkeys(("eager", "math", "unfused", "local"), False),
}
"""Words for attention, and whether its scores stay out of memory."""
OPTIMIZERS: Mapping[str, OptimizerName] = {
    **dict.fromkeys(("adamw", "adam", "lamb", "lora-fa"), "adamw"),
    "muon": "muon",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
"""Names of optimizers, and whose states theirs are: LAMB has AdamW's two moments (You et al., 2020, arXiv 1904.00962,
algorithm 2), LoRA-FA is AdamW on half of the adapters' factors (Zhang et al., 2023, arXiv 2308.03303, section 3)."""
_IMPLEMENTED = (
    r"distributed|dist|decoupled|deepspeed|megatron|mcore|torchao|torch|apex|bnb|bitsandbytes|transformer-engine|te|hf"
    r"|xla|npu|cpu|paged-?(?=adam|optimi[sz]er)|(?:8|32)-?bit|in-backward|optimizer-in-bwd|optimi[sz]er|optim"
    r"|(?:with-)?momentum|nesterov"
    r"|(?:fused|foreach|capturable)(?:-?=-?(?:true|false|yes|no))?"
)
"""Words beside an optimizer's name: who implements it, and what is read elsewhere (paged, on the host, 8 bits)."""
_OPTIMIZER = re.compile("|".join((*sorted(OPTIMIZERS, key=len, reverse=True), _IMPLEMENTED)))
RECOMPUTED: Mapping[str, Recompute] = {
    **dict.fromkeys(("none", "no", "false", "off", "0"), "none"),
    **dict.fromkeys(("selective", "op", "per-op-sac", "sac", "partial", "block"), "selective"),
    **dict.fromkeys(("full", "yes", "true", "on", "1", "all", "uniform", "full-uniform", "full(uniform)"), "full"),
    **dict.fromkeys(("full-layer", "all-layers", "every-layer", "unsloth", "save-nothing"), "full"),
}
"""Words for what the backward pass computes again: nothing, a part, or all of each layer."""
_MODULE = r"core-attn|core-attention|attention|attn|mlp|moe-act|moe|shared-experts|layernorm|mla-up-proj"
_PART = re.compile(
    rf"selective\W.*|(?:(?:{_MODULE})(?:[,+-]-?|$))+"  # Megatron-Core's names of modules
    r"|minimal(?:-with-context|-flash)?|save-(?:dot|qkv|out)-[a-z-]*"  # MaxText's names of policies
)
_FRACTION = re.compile(r"(?:(\d+(?:\.\d+)?)-?%|(\d*\.\d+)|(\d+)/([1-9]\d*))(?:-of)?(?:-layers)?")
OFFLOADED: Mapping[str, Literal["nvme", "optimizer", "all", "frozen"]] = {
    "nvme": "nvme",
    **dict.fromkeys(("optimizer", "optimizer-state", "optimizer-states"), "optimizer"),
    "all": "all",
    "frozen": "frozen",
}
"""Words for what is in host memory, or where it is in place of it, beside yes and no."""
PRETRAINS = frozenset(("", "pretrain", "pretraining", "pre-training", "train", "training", "cpt"))
"""Words for training all weights on text as it comes; ``cpt`` goes on with it."""
TUNES = frozenset(("full", "full-ft", "finetune", "fine-tune", "finetuning", "fine-tuning", "sft"))
"""Words for tuning all weights."""
ADAPTED: Mapping[str, str] = {
    **dict.fromkeys(("lora", "qlora", "gptq-lora", "lora-gptq", "dora", "qdora", "peft"), "lora"),
    **dict.fromkeys(("adapter", "adapter_v2", "llama-adapter"), "adaptionprompt"),
}
"""Words for training a few weights beside frozen ones, each with its method in PEFT's words."""


class UnknownWord(ValueError):
    """A word that is not understood, with the words that are."""

    def __init__(self, name: str, seen: str, expected: str, known: Iterable[str]) -> None:
        self.expected, self.known = expected, tuple(known)
        super().__init__(f"{name} is {seen}, expected {expected}")


class Training(NamedTuple):
    """What a run trains for: ``tunes`` a model that is trained; ``method`` of adapters in PEFT's words, None: all."""

    tunes: bool
    method: str | None


def trains(notes: Mapping[str, str]) -> Training:
    """Returns what a run trains for: the notes' ``task``, or ``lora`` where that is a flag; pretraining by default.

    Raises:
        ValueError: a task that is not known, or one of all weights beside ``lora=true``.
    """
    said = notes.get("task", "")
    task, adapts = said.strip().lower(), switch(notes, "lora")
    if task.startswith("peft:"):
        return Training(True, task.removeprefix("peft:"))
    word = task.partition("(")[0].strip()
    if word in ADAPTED:
        return Training(True, ADAPTED[word])
    if word not in PRETRAINS | TUNES:
        known = sorted({*PRETRAINS, *TUNES, *ADAPTED} - {""})
        raise UnknownWord("task", said, f"one of {', '.join(known)}, or peft: and a method of PEFT", known)
    if adapts and word:
        raise ValueError(f"task is {said}, expected lora beside lora={notes['lora']}")
    return Training(True, "lora") if adapts else Training(word in TUNES, None)


def switch(notes: Mapping[str, str], name: str) -> bool:
    """Returns True where notes name a setting alone or with yes, False where they do not or say no.

    Raises:
        ValueError: another word.
    """
    return name in notes and flag(name, notes[name]) is not False


def flag(name: str, text: str, more: Mapping[str, bool] | None = None) -> bool | None:
    """Returns what a flag says; None where it is empty. ``more`` are words beside yes and no.

    Raises:
        ValueError: another word.
    """
    known = {**FLAGS, **(more or {})}
    word = _plain(text)
    if not word:
        return None
    if word not in known:
        others = f", or one of {', '.join(more)}" if more else ""
        raise UnknownWord(name, text, f"yes or no{others}", known)
    return known[word]


def compiled(text: str) -> bool | None:
    """Returns True where a compiler makes the kernels; None where the column is empty; raises as ``flag``."""
    return flag("compile", text, COMPILERS)


def fused(text: str, name: str = "flash_attention") -> bool | None:
    """Returns True where attention's scores stay out of memory; None where it is not said; raises as ``flag``."""
    return flag(name, text, ATTENTION)


def offloaded(text: str) -> bool | Literal["nvme", "optimizer", "all", "frozen"] | None:
    """Returns whether something waits in host memory, or what and where; None where the column is empty.

    Raises:
        ValueError: another word.
    """
    return OFFLOADED.get(_plain(text)) or flag("cpu_offload", text, dict.fromkeys(OFFLOADED, True))


def optimizer_of(text: str) -> OptimizerName:
    """Returns the optimizer: AdamW where none is named, Muon where AdamW updates what it leaves.

    Raises:
        ValueError: a word that is neither a known optimizer nor known beside one, or two optimizers.
    """
    word = _plain(text)
    found = _OPTIMIZER.findall(word)
    names = {OPTIMIZERS[name] for name in found if name in OPTIMIZERS}
    if "muon" in names:
        names.discard("adamw")
    if re.search(r"[^\W_]", _OPTIMIZER.sub(" ", word)) or len(names) > 1:
        raise UnknownWord("optimizer", text, f"one of {', '.join(OPTIMIZERS)}", OPTIMIZERS)
    return names.pop() if names else "adamw"


def recompute_of(text: str) -> Recompute:
    """Returns what is computed again: nothing where it is not said, a part where a share or modules are named.

    Raises:
        ValueError: another word.
    """
    word = _plain(text)
    if word in RECOMPUTED or not word:
        return RECOMPUTED.get(word, "none")
    if _PART.fullmatch(word):
        return "selective"
    if match := _FRACTION.fullmatch(word):
        percent, share, part, whole = match.groups()
        value = float(percent) / 100 if percent else float(share) if share else int(part) / int(whole)
        if value <= 1:
            return "none" if value == 0 else "full" if value == 1 else "selective"
    raise UnknownWord("activation_checkpointing", text, f"one of {', '.join(RECOMPUTED)}", RECOMPUTED)


def _plain(text: str) -> str:
    """Returns a word in lower case, with one way to join its parts."""
    return re.sub(r"[\s_-]+", "-", text.strip().lower())


READERS: Mapping[str, Callable[[str], object]] = {
    "activation_checkpointing": recompute_of,
    "cpu_offload": offloaded,
    "compile": compiled,
    "flash_attention": fused,
    "tied_embeddings": lambda text: flag("tied_embeddings", text),
    "oom": lambda text: flag("oom", text),
    "optimizer": optimizer_of,
}
"""Columns whose values are words, each with what reads them."""
