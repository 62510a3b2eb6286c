"""Reads our own ledger of finished runs (``audit`` appends to it) as measured runs to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SPEED, MEMORY = "run/tokens per second", "run/peak memory"
"""Rows of a ledger line, each a pair of predicted and measured."""
GIB = float(1 << 30)


def is_ledger(run: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a line of the ledger."""
    return {"model", "workload", "rows", "device"} <= set(run)


def as_run(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the ledger in the columns of a table of runs.

    Raises:
        KeyError: the line lacks a field that every ledger has.
    """
    model, work, rows = line["model"], line["workload"], line["rows"]
    devices = int(line["devices"])
    return {
        "id": line["run"], "source_repo_or_paper": "ledger", "framework": "trainwright",
        "arch": "llama" if model["gated"] else "gpt", "n_layers": model["layers"], "hidden": model["width"],
        "ffn_hidden": model["ffn_width"], "n_heads": model["heads"], "n_kv_heads": model["kv_heads"],
        "vocab": model["vocabulary"], "seq_len": work["sequence_tokens"], "tied_embeddings": model["tied"],
        "gpu": line["device"], "n_gpus": devices, "dtype": work["precision"], "optimizer": work["optimizer"],
        "dp_shard_or_fsdp": f"ddp:{devices}", "micro_batch": line["micro_batch"],
        "global_batch": work["batch_tokens"] // work["sequence_tokens"], "activation_checkpointing": work["recompute"],
        "compile": bool(line["compile"]), "tokens_per_s_per_gpu": rows[SPEED][1] / devices,
        "peak_mem_gib_per_gpu": rows[MEMORY][1] / GIB, "oom": False,
    }  # fmt: skip
