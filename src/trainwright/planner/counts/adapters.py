"""Low-rank adapters beside a model's matrices: which these are, their parameters, and the operations they save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import did_you_mean, unknown
from trainwright.planner.counts.parameters import (
    BLOCK_PARTS,
    Matrix,
    Part,
    matrices,
    total_parameters,
)
from trainwright.spec.convnet import AnyModel, transformer
from trainwright.spec.model import ModelSpec
from trainwright.spec.stack import Stack
from trainwright.spec.workload import Adapter, Frozen, Workload

FROZEN_BYTES: Mapping[Frozen, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "int8": 1.0,
    "nf4": 0.5 + 4 / 64,
    "int4": 0.5 + 3 / 128,
}
"""Bytes of one frozen element with its scales, where it is kept, gathered and read. nf4: four bits, and one fp32 scale
for 64 of them (Dettmers et al., 2023, arXiv 2305.14314, section 3); int4: GPTQ's groups of 128 with a 16-bit scale and
a packed zero point."""
NF4_DOUBLE_BYTES = 0.5 + (1 + 4 / 256) / 64
"""nf4 with double quantisation: 8-bit scales, 256 of them under one fp32 scale (same section)."""
QUANTISED_FROZEN: frozenset[Frozen] = frozenset(("nf4", "int4", "int8"))
"""Kinds of frozen weights that are made anew in 16 bits for each product."""
BITSANDBYTES_FROZEN: frozenset[Frozen] = frozenset(("nf4", "int8"))
"""Those whose products are bitsandbytes' own."""


def frozen_bytes(frozen: Frozen, *, double_quantised: bool) -> float:
    """Returns the bytes of one frozen element; nf4's scales are quantised too where the software does so."""
    return NF4_DOUBLE_BYTES if frozen == "nf4" and double_quantised else FROZEN_BYTES[frozen]


class AdapterMoves(NamedTuple):
    """Elements of 16 bits that software moves in the forward pass for each input and output of an adapted matrix.

    The first product reads its input, which may be cast or dropped first; the second writes its result, which is scaled
    (a read and a write) and added (two and one), unless the second product does both on what it is added to.
    """

    inputs: float
    outputs: float


def adapter_moves(software: Stack) -> AdapterMoves:
    """Returns what a stack's kernels move; a copy of an input is written once, and read by the product in its place."""
    outputs = 2.0 if software.fused_adapters else 6.0
    return AdapterMoves(1.0 + software.memory.adapter_input_bytes, outputs)


PLAIN_MOVES = AdapterMoves(3.0, 6.0)
"""Of software that is not known: a copy of each input in 16 bits, sums of their own."""
_LATENT = {
    "q_a_proj": "query_down",
    "q_b_proj": "query_up",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_b_proj": "kv_up",
}
"""Modules of DeepSeek's attention (transformers 5.23.0, models/deepseek_v3), each with its matrix."""
_QKV, _UP = ("query", "key", "value"), ("gate", "up")
TARGETS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*_QKV, "output", *_UP, "down", *_LATENT.values(), "shared_gate")},
    **{module: (name,) for module, name in _LATENT.items()},
    "shared_expert_gate": ("shared_gate",),
    **dict(zip(("q_proj", "k_proj", "v_proj", "o_proj"), (("query",), ("key",), ("value",), ("output",)), strict=True)),
    **dict.fromkeys(("c_attn", "qkv_proj", "query_key_value", "wqkv", "linear_qkv", "attention_qkv"), _QKV),
    **dict.fromkeys(("out_proj", "output_proj", "linear_proj", "attention_dense"), ("output",)),
    **dict(zip(("gate_proj", "up_proj", "down_proj"), (("gate",), ("up",), ("down",)), strict=True)),
    **dict.fromkeys(("fc1", "c_fc", "dense_h_to_4h"), ("up",)),
    **dict.fromkeys(("linear_fc1", "mlp_fc1", "gate_up_proj"), _UP),
    **dict.fromkeys(("fc2", "linear_fc2", "mlp_fc2", "dense_4h_to_h"), ("down",)),
    **dict.fromkeys(("attention", "attn"), (*_QKV, "output")),
    "mlp": (*_UP, "down"),
}
"""Modules' names, each with the matrices that it has: keys and gates may be parts of a wider one."""
ALL_LINEAR = ("all", "all-linear", "all_linear")
"""Words for every matrix of a layer."""
ATTENTION: Part = "attention"
EXPERTS: Part = "experts"
USUAL_RANK = 16
"""Of adapters in a plan where nobody says it."""
DORA = "dora"
"""The method that trains the lengths of rows too (Liu et al., 2024, arXiv 2402.09353)."""


def adaptable(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of a block's matrices but the router's, experts' among them."""
    return _names(model, (part for part in BLOCK_PARTS if part != "router"))


def linear(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of a block's linear layers: adapters' default targets.

    Dettmers et al., 2023, arXiv 2305.14314, section 4: adapters on all of them are needed to match full fine-tuning. A
    mixture's experts are none of them: transformers 5.23.0 keeps those of a layer in one parameter of three dims
    (models/qwen3_moe/modeling_qwen3_moe.py, lines 217-218; gpt_oss, mixtral, deepseek_v3, qwen2_moe and llama4 alike),
    and PEFT's targets, ``all-linear`` too, name modules (huggingface/peft: recall). Shared experts are plain linear
    layers (deepseek_v3, lines 110-112; qwen2_moe, lines 128-130, 336-337), and so are blocks without experts; the
    router is a parameter again.
    """
    return _names(model, (part for part in BLOCK_PARTS if part not in ("router", EXPERTS)))


def attention(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of attention's matrices."""
    return _names(model, (ATTENTION,))


def _names(model: ModelSpec, parts: Iterable[Part]) -> tuple[str, ...]:
    some = set(parts)
    return tuple(dict.fromkeys(each.name for each in matrices(model) if each.part in some))


def beside(model: ModelSpec, words: Iterable[str] | None, *, rank: int, frozen: Frozen = "bf16") -> Adapter:
    """Returns adapters beside what ``words`` name; None: beside all linear layers.

    ``attention``, ``all-linear``, names of modules (``q_proj``) or matrices, which mean linear layers alone, as in
    PEFT; with ``experts`` among them the names mean experts' matrices too, and all of an expert's are named.

    Raises:
        RecipeError: an unknown word, with the nearest; experts of a model without any; or no linear layer has a name.
    """
    known, reached = adaptable(model), linear(model)
    asked = tuple(ALL_LINEAR[1:2] if words is None else (word.lower().rpartition(".")[2] for word in words))
    experts = EXPERTS in asked
    names: dict[str, None] = {}
    for word in asked:
        found = _named(model, word)
        if not found:
            choices = (ATTENTION, "all-linear", *([EXPERTS] if model.experts else ()), *known)
            modules = [module for module in TARGETS if module not in choices and _named(model, module)]
            expected = f"{', '.join(choices)}, or a module such as {modules[0]}"
            fix = did_you_mean(word, (*choices, *modules))
            raise RecipeError("no such matrix to adapt", seen=repr(word), expected=expected, fix=fix)
        names |= dict.fromkeys(found)
    targets = tuple(name for name in known if name in names and (experts or name in reached))
    if not targets:
        what, fix = "no linear layer has these names, experts alone", f"add {EXPERTS}"
        raise RecipeError(what, seen=", ".join(asked), expected=f"some of {', '.join(reached)}", fix=fix)
    return Adapter(rank=rank, targets=targets, frozen=frozen, experts=experts)


def _named(model: ModelSpec, word: str) -> tuple[str, ...]:
    """Returns the matrices of a model that a word names; empty where it has none."""
    if word in ALL_LINEAR:
        return linear(model)
    if word in ("attention", "attn"):
        return attention(model)
    if word == EXPERTS:
        return _names(model, (EXPERTS,))
    return tuple(name for name in TARGETS.get(word, ()) if name in adaptable(model))


_FOLDERS: Mapping[Part, str] = {"attention": "attention", "feed_forward": "ffn"}
"""Parts of a block, each with the name of its module in our networks."""
_LEAVES = {"output": "out"}
"""Matrices whose module has another name."""
PATTERN = frozenset("*?[")
"""Characters of patterns over modules' names, which no word has."""
BLOCKS = "blocks."
"""What whole names of our modules begin with; other words with dots are other libraries' names (self_attn.q_proj)."""


def places(model: ModelSpec) -> Iterator[tuple[str, Matrix]]:
    """Yields the linear layers of our networks' blocks that adapters stand beside, by their modules' names."""
    for matrix in matrices(model):
        if matrix.part in _FOLDERS:
            for layer in range(model.blocks):
                if matrix.part == "feed_forward" and model.mixes(layer):
                    continue
                yield f"blocks.{layer}.{_FOLDERS[matrix.part]}.{_LEAVES.get(matrix.name, matrix.name)}", matrix


def placed(model: ModelSpec, words: Iterable[str]) -> dict[str, Matrix]:
    """Returns the layers that words and patterns name, by their modules' names, in the order of the network.

    Raises:
        RecipeError: an unknown word, with the nearest; it means experts alone; or a pattern matches none.
    """
    known = dict(places(model))
    words = tuple(words)
    patterns = tuple(word for word in words if PATTERN & set(word) or word.startswith(BLOCKS))
    chosen = {name for word in words if word not in patterns for name in _layers_of(model, word, known)}
    for pattern in patterns:
        found = {name for name in known if fnmatchcase(name, pattern)}
        if not found:
            raise RecipeError(
                "no linear layer has such a name", seen=repr(pattern), expected=f"as in {next(iter(known))}"
            )
        chosen |= found
    return {name: matrix for name, matrix in known.items() if name in chosen}


def _layers_of(model: ModelSpec, word: str, known: Mapping[str, Matrix]) -> set[str]:
    """Returns the layers of ``known`` that a word means."""
    last = word.lower().rpartition(".")[2]
    names = _named(model, last)
    if not names and last != EXPERTS:
        beside(model, [word], rank=1)  # says what is near
    found = {name for name, matrix in known.items() if matrix.name in names and last != EXPERTS}
    if not found:
        expected = f"some of {', '.join(dict.fromkeys(matrix.name for matrix in known.values()))}"
        raise RecipeError("no adapters are trained beside experts, shared ones too", seen=repr(word), expected=expected)
    return found


def adapter_of(model: ModelSpec, words: Iterable[str], *, rank: int, frozen: Frozen, method: str = "lora") -> Adapter:
    """Returns the adapters of our trainer; those beside some layers alone are counted. Raises as ``placed``."""
    chosen = placed(model, words)
    targets = tuple(dict.fromkeys(matrix.name for matrix in chosen.values()))
    adapter = Adapter(rank=rank, targets=targets, frozen=frozen, experts=False, method=method)
    counted = sum(_factor_parameters(adapter, matrix) for matrix in chosen.values())
    return adapter if counted == adapter_parameters(model, adapter) else replace(adapter, parameters=counted)


def _factor_parameters(adapter: Adapter, matrix: Matrix) -> int:
    """Returns what is trained beside one matrix: two factors, and with DoRA the length of each row."""
    lengths = matrix.outputs if adapter.method == DORA else 0
    return adapter.rank * (matrix.outputs + matrix.inputs) + lengths


def stands_beside(adapter: Adapter, matrix: Matrix) -> bool:
    """Returns whether ``adapter`` has factors beside a matrix."""
    return matrix.name in adapter.targets and (adapter.experts or matrix.part != EXPERTS)


def adapted(model: ModelSpec, adapter: Adapter) -> tuple[Matrix, ...]:
    """Returns the matrices that ``adapter`` stands beside.

    Raises:
        RecipeError: the model has no matrix of a target's name; names the nearest.
    """
    known = dict.fromkeys(matrix.name for matrix in matrices(model))
    for target in adapter.targets:
        if target not in known:
            raise RecipeError("no such matrix to adapt", **unknown(target, known))
    return tuple(matrix for matrix in matrices(model) if stands_beside(adapter, matrix))


def adapter_parameters(model: ModelSpec, adapter: Adapter) -> int:
    """Returns the trained parameters: two factors of ``rank`` beside every target's copy; raises as ``adapted``."""
    if adapter.parameters is not None:
        return adapter.parameters
    return sum(
        matrix.layers * matrix.copies * _factor_parameters(adapter, matrix) for matrix in adapted(model, adapter)
    )


def count_trained(model: AnyModel, workload: Workload) -> int:
    """Returns the parameters that a step updates: all of a model's, or the adapters' alone."""
    if workload.adapter is None:
        return total_parameters(model)
    return adapter_parameters(transformer(model), workload.adapter)
