"""A measured run as a user writes it down in JSON, checked name by name, as columns of a table of runs.

Tables of published runs may hold columns that nobody reads and words that mean nothing; a run that a user wrote to have
predictions corrected by it may not: a misspelt name would change nothing, silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.registry import did_you_mean
from trainwright.hardware.models import read_model
from trainwright.spec.model import ModelSpec

SHAPE = (
    "arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab", "tied_embeddings",
)  # fmt: skip
MEASURED = ("tokens_per_s_per_gpu", "tflops_per_gpu", "step_time_s", "peak_mem_gib_per_gpu", "oom")
NAMES = (
    "id", "source_repo_or_paper", "source_path", "framework", "model", "model_name", "n_params", *SHAPE, "seq_len",
    "gpu", "n_gpus", "interconnect_note", "dtype", "dp_shard_or_fsdp", "tp", "pp", "cp", "ep", "micro_batch",
    "global_batch", "activation_checkpointing", "optimizer", "cpu_offload", "compile", "flash_attention", *MEASURED,
    "mfu_reported", "notes",
)  # fmt: skip
"""All that a run may say: the columns of a table, and ``model`` in place of a shape."""
YES_NO = ("yes", "no", "true", "false")
WORDS: Mapping[str, tuple[str, ...]] = {
    "activation_checkpointing": ("none", "selective", "full"), "cpu_offload": YES_NO, "compile": YES_NO,
    "flash_attention": YES_NO, "tied_embeddings": YES_NO, "oom": YES_NO,
    "optimizer": ("adam", "adamw", "muon", "adafactor", "sgd"),
}  # fmt: skip
"""Names whose values are words, and those words."""


def checked(run: Mapping[str, Any], *, where: str, place: int) -> dict[str, Any]:
    """The run with its shape filled in, as columns of a table.

    Raises:
        DataError: an unknown name or word, a shape given twice, or nothing that was measured.
        RecipeError: the model is in no catalogue.
    """
    here = f"{where}, run {place}"
    for name in run:
        if name not in NAMES:
            raise DataError("unknown name", where=here, seen=name, expected=f"one of {', '.join(NAMES)}",
                            fix=did_you_mean(name, list(NAMES)))  # fmt: skip
    found = {name: value for name, value in run.items() if value is not None and value != ""}
    for name, words in WORDS.items():
        value = _word(found.get(name))
        if value is not None and value not in words:
            raise DataError("unknown value", where=f"{here}, {name}", seen=repr(found[name]),
                            expected=f"one of {', '.join(words)}", fix=did_you_mean(value, list(words)))  # fmt: skip
        if words is YES_NO and value is not None:
            found[name] = value in ("yes", "true")
    if not any(name in found for name in MEASURED):
        raise DataError(
            "nothing was measured", where=here, seen=f"no {', '.join(MEASURED[:4])}",
            expected="one of them at least: tokens or 10^12 operations of a second and device, seconds of a step, GiB",
        )  # fmt: skip
    return {"id": f"run {place}"} | _with_shape(found, where=here)


def _word(value: Any) -> str | None:
    if value is None:
        return None
    return ("yes" if value else "no") if isinstance(value, bool) else str(value).lower()


def _with_shape(run: dict[str, Any], *, where: str) -> dict[str, Any]:
    if "model" not in run:
        return run
    twice = [name for name in SHAPE if name in run]
    if twice:
        raise DataError("a model has its shape", where=where, seen=f"model and {twice[0]}", fix="leave one of them out")
    model = read_model(str(run["model"]), where=f"{where}, model")
    if not isinstance(model, ModelSpec) or model.kind == "vision":
        raise DataError("no model of text", where=f"{where}, model", seen=run["model"], expected="a transformer")
    notes = "; ".join(filter(None, (str(run.get("notes", "")), *_notes(model))))
    return shape_of(model) | {name: value for name, value in run.items() if name != "model"} | {"notes": notes}


def shape_of(model: ModelSpec) -> dict[str, Any]:
    """Columns of a table that describe a transformer."""
    gated = "llama" if model.gated else "gpt"
    return {
        "arch": "bert" if model.kind == "encoder" else "moe" if model.experts else gated, "n_layers": model.layers,
        "hidden": model.width, "ffn_hidden": model.experts.ffn_width if model.experts else model.ffn_width,
        "n_heads": model.heads, "n_kv_heads": model.kv_heads, "vocab": model.vocabulary, "tied_embeddings": model.tied,
    }  # fmt: skip


def _notes(model: ModelSpec) -> list[str]:
    """What a table's notes say of a shape that has no column."""
    found = [f"head_dim={model.head_size}"]
    if model.experts is not None:
        experts = model.experts
        found += [
            f"experts={experts.count}", f"topk={experts.active}", f"dense_layers={experts.dense_layers}",
            f"dense_ffn={model.ffn_width}", f"moe-shared-expert-intermediate-size={experts.shared_ffn_width}",
        ]  # fmt: skip
    return found + (["MLA"] if model.latent is not None else [])
