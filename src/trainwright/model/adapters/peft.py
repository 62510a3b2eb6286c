"""PEFT's file format, both ways: ``adapter_config.json`` and ``adapter_model.safetensors``, without that package.

A module of Hugging Face's may hold several of our matrices (GPT-2's ``c_attn``). Its one adapter is then ours beside
each, with the same ``a``; ours beside several become one of it, whose rank is their sum where their ``a`` differ.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.paths import read_object
from trainwright.model.adapters.rows import Rows, rows_of
from trainwright.model.adapters.stored import parameter_name
from trainwright.model.weights import load_weights, save_weights
from trainwright.planner.counts.adapters import places
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.adaptation import LowRank

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
QUANTISATION = "quantization_config.json"
"""Beside them where the base is to be quantised first: what ``transformers.BitsAndBytesConfig.from_dict`` reads."""
PREFIX = "base_model.model."
A, B, MAGNITUDE = "lora_A.weight", "lora_B.weight", "lora_magnitude_vector"
PLAIN: Mapping[str, object] = {
    "bias": "none",
    "lora_bias": False,
    "modules_to_save": None,
    "trainable_token_indices": None,
    "target_parameters": None,
    "alora_invocation_tokens": None,
}
"""Settings of PEFT that have these values, or nothing, in what is read."""
INITIAL = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""``init_lora_weights`` beside which the base stays as it is; of others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) PEFT 0.21
takes the first factors out of the base's weights, or quantises these, and stores no such base."""
READ = frozenset(
    [
        "peft_type",
        "base_model_name_or_path",
        "r",
        "lora_alpha",
        "rank_pattern",
        "alpha_pattern",
        "use_rslora",
        "use_dora",
        "init_lora_weights",
    ]
)
IDLE = frozenset(
    [
        "task_type",
        "auto_mapping",
        "peft_version",
        "revision",
        "inference_mode",
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "fan_in_fan_out",
        "lora_dropout",
        "megatron_config",
        "megatron_core",
        "loftq_config",
        "eva_config",
        "corda_config",
        "lora_ga_config",
        "velora_config",
        "qalora_group_size",
        "ensure_weight_tying",
    ]
)
"""Settings of PEFT that change nothing of what stored adapters compute: where they stand is in the tensors' names."""


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters without a base: what stands beside which layers, and tensors by our parameters' names."""

    modules: Mapping[str, LowRank]
    tensors: Mapping[str, Tensor]
    magnitude: bool = False


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What stands beside one module of Hugging Face's."""

    how: LowRank
    a: Tensor
    b: Tensor
    magnitude: Tensor | None


def write(
    directory: Path, spec: ModelSpec, adapters: Adapters, *, base: str, quantisation: Mapping[str, object] | None = None
) -> None:
    """Writes adapters as PEFT has them.

    Args:
        directory: where; it exists.
        spec: of the base.
        adapters: beside it.
        base: what ``base_model_name_or_path`` says.
        quantisation: how the base is to be quantised, as transformers says it; None: it is not.

    Raises:
        RecipeError: the family has no form there; rows' lengths of a part of a module alone; a head is trained too.
        MachineError: the disk is full, or the place cannot be written.
    """
    where = str(directory)
    rows = rows_of(spec, adapters.modules, where=where)
    joined: dict[str, list[str]] = {}
    for path, place in rows.items():
        joined.setdefault(place.module, []).append(path)
    factors = {parameter_name(path, name) for path in rows for name in ("a", "b", "magnitude")}
    others = sorted(adapters.tensors.keys() - factors)
    if others:
        fix = "export the merged weights: huggingface"
        raise RecipeError("this form has adapters alone", where=where, seen=others[0], fix=fix)
    made = {module: _joined(adapters, {path: rows[path] for path in joined[module]}, where) for module in joined}
    tensors: dict[str, Tensor] = {}
    for module, beside in made.items():
        tensors[f"{PREFIX}{module}.{A}"] = beside.a
        tensors[f"{PREFIX}{module}.{B}"] = beside.b
        if beside.magnitude is not None:
            tensors[f"{PREFIX}{module}.{MAGNITUDE}"] = beside.magnitude
    save_weights(directory / WEIGHTS, tensors, metadata={"format": "pt"})
    transposed = any(place.transposed for place in rows.values())
    config = _config({module: beside.how for module, beside in made.items()}, spec, base, where) | {
        "use_dora": adapters.magnitude,
        "fan_in_fan_out": transposed,
    }
    written = {CONFIG: config} | ({} if quantisation is None else {QUANTISATION: quantisation})
    for name, record in written.items():
        write_atomically(directory / name, json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")


def _task_type(spec: ModelSpec) -> str:
    """Returns which of its classes peft wraps the base in; the last one takes any body."""
    if spec.classes:
        return "TOKEN_CLS" if spec.tells_tokens else "SEQ_CLS"
    return "CAUSAL_LM" if spec.writes_text else "FEATURE_EXTRACTION"


def _config(made: Mapping[str, LowRank], spec: ModelSpec, base: str, where: str) -> dict[str, Any]:
    ranks = [how.rank for how in made.values()]
    rank = max(set(ranks), key=ranks.count)
    alphas = {module: how.scale * how.rank for module, how in made.items()}
    alpha = next(alphas[module] for module, how in made.items() if how.rank == rank)
    every = {place.module for place in rows_of(spec, [path for path, _ in places(spec)], where=where).values()}
    last = {module.rpartition(".")[2] for module in made}
    all_of_them = {module for module in every if module.rpartition(".")[2] in last} == set(made)
    return {
        "peft_type": "LORA",
        "task_type": _task_type(spec),
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": _short(alpha),
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "init_lora_weights": True,
        "target_modules": sorted(last if all_of_them else made),
        "rank_pattern": {re.escape(module): how.rank for module, how in made.items() if how.rank != rank},
        "alpha_pattern": {re.escape(module): _short(each) for module, each in alphas.items() if each != alpha},
        "modules_to_save": None,
    }


def _short(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _joined(adapters: Adapters, parts: Mapping[str, Rows], where: str) -> _Beside:
    """Returns the adapter of a module from those of its parts."""

    def tensor(path: str, name: str) -> Tensor:
        return adapters.tensors[parameter_name(path, name)].float()

    first_path, first_rows = next(iter(parts.items()))
    first, first_a = adapters.modules[first_path], tensor(first_path, "a")
    shared = all(adapters.modules[path] == first and torch.equal(tensor(path, "a"), first_a) for path in parts)
    rank = first.rank if shared else sum(adapters.modules[path].rank for path in parts)
    a = first_a if shared else torch.cat([tensor(path, "a") for path in parts])
    b, column = a.new_zeros(first_rows.outputs, rank), 0
    for path, place in parts.items():
        how = adapters.modules[path]
        columns = slice(0, rank) if shared else slice(column, column + how.rank)
        b[place.rows, columns] = tensor(path, "b") * (how.scale / first.scale)
        column += how.rank
    magnitude = None
    if adapters.magnitude:
        if sum(len(place.rows) for place in parts.values()) != first_rows.outputs:
            seen, fix = first_rows.module, "adapt all of query, key and value"
            raise RecipeError("DoRA's lengths are of all rows of a module", where=where, seen=seen, fix=fix)
        magnitude = a.new_empty(first_rows.outputs)
        for path, place in parts.items():
            magnitude[place.rows] = tensor(path, "magnitude")
    return _Beside(how=LowRank(rank=rank, scale=first.scale), a=a, b=b, magnitude=magnitude)


def read(directory: Path, spec: ModelSpec) -> Adapters:
    """Returns what PEFT wrote, beside the layers of a network of our own.

    Raises:
        DataError: a file is missing or damaged, or the adapters are of a kind or a base that this is not; names it.
    """
    config = read_object(directory / CONFIG)
    _check_kind(config, directory / CONFIG)
    tensors = load_weights(directory / WEIGHTS)
    modules: dict[str, dict[str, Tensor]] = {}
    for name, values in tensors.items():
        module, kind = _split(name, directory / WEIGHTS)
        modules.setdefault(module, {})[kind] = values.float()
    sizes = dict(places(spec))
    rows: dict[str, list[tuple[str, Rows]]] = {}
    for path, place in rows_of(spec, sizes, where=str(directory)).items():
        rows.setdefault(place.module, []).append((path, place))
    chosen: dict[str, LowRank] = {}
    ours: dict[str, Tensor] = {}
    for module, found in sorted(modules.items()):
        if module not in rows:
            raise _of_another_base(directory, module, expected=f"modules such as {next(iter(rows))}")
        beside = _beside(directory, module, found, config)
        _check_sizes(directory, module, beside, rows[module][0][1].outputs, sizes[rows[module][0][0]].inputs)
        for path, place in rows[module]:
            chosen[path] = beside.how
            ours[parameter_name(path, "a")] = beside.a.clone()
            ours[parameter_name(path, "b")] = beside.b[place.rows].clone()
            if beside.magnitude is not None:
                ours[parameter_name(path, "magnitude")] = beside.magnitude[place.rows].clone()
    ordered = {path: chosen[path] for path in sizes if path in chosen}
    return Adapters(modules=ordered, tensors=ours, magnitude=bool(config.get("use_dora")))


def _check_kind(config: Mapping[str, Any], where: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise DataError("only LoRA of PEFT is read", where=where, seen=f"peft_type={config.get('peft_type')}")
    initial = config.get("init_lora_weights", True)
    if initial is not None and initial not in INITIAL:
        raise DataError(
            "these adapters stand beside a base that PEFT changed",
            where=where,
            seen=f"init_lora_weights={initial}",
            fix="save them with path_initial_model_for_weight_conversion, which makes plain ones of them",
        )
    for key, value in config.items():
        if key in READ | IDLE or value in (PLAIN.get(key), None, False, {}, []):
            continue
        expected = f"{key}={json.dumps(PLAIN.get(key))}"
        raise DataError("this setting of PEFT is not read", where=where, seen=f"{key}={value}", expected=expected)


def _split(name: str, where: Path) -> tuple[str, str]:
    for kind in (A, B, MAGNITUDE):
        if name.startswith(PREFIX) and name.endswith(f".{kind}"):
            return name[len(PREFIX) : -len(kind) - 1], kind
    raise DataError("this tensor is none of an adapter's", where=where, seen=name, expected=f"{PREFIX}....{A}")


def _beside(directory: Path, module: str, found: Mapping[str, Tensor], config: Mapping[str, Any]) -> _Beside:
    wanted = (A, B, MAGNITUDE) if config.get("use_dora") else (A, B)
    for kind in wanted:
        if kind not in found:
            raise DataError("a weight is missing", where=directory / WEIGHTS, expected=f"{PREFIX}{module}.{kind}")
    rank = found[A].shape[0]
    alpha = float(_by_pattern(config.get("alpha_pattern") or {}, module, config.get("lora_alpha", 8)))
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    how = LowRank(rank=rank, scale=scale)
    return _Beside(how=how, a=found[A], b=found[B], magnitude=found.get(MAGNITUDE))


def _by_pattern(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    """Returns the value of the first regular expression that a module's name ends with, as PEFT chooses it."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def _check_sizes(directory: Path, module: str, beside: _Beside, outputs: int, inputs: int) -> None:
    rank = beside.how.rank
    shapes = ((A, beside.a, (rank, inputs)), (B, beside.b, (outputs, rank)), (MAGNITUDE, beside.magnitude, (outputs,)))
    for kind, values, shape in shapes:
        if values is not None and tuple(values.shape) != shape:
            seen = f"{module}.{kind} of shape {tuple(values.shape)}"
            raise _of_another_base(directory, seen, expected=f"shape {shape}")


def _of_another_base(directory: Path, seen: str, *, expected: str) -> DataError:
    return DataError("these adapters belong to another base", where=directory, seen=seen, expected=expected)
