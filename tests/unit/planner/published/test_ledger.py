from __future__ import annotations

import json

import pytest

from trainwright.planner.published.ledger import as_run, is_ledger
from trainwright.planner.published.question import question
from trainwright.planner.published.rows import read_runs

GIB = 1 << 30
LINE = {
    "run": "quickstart", "finished_unix_s": 0.0, "device": "NVIDIA H100 80GB HBM3", "devices": 1, "threads": None,
    "model": {
        "family": "llama", "layers": 12, "width": 768, "heads": 12, "kv_heads": 4, "head_size": 64, "ffn_width": 2048,
        "vocabulary": 32000, "context_tokens": 1024, "tied": True, "gated": True,
    },
    "workload": {
        "sequence_tokens": 1024, "batch_tokens": 65536, "precision": "bf16", "optimizer": "adamw", "recompute": "none",
    },
    "micro_batch": 8, "compile": True,
    "rows": {"run/tokens per second": [90_000.0, 100_000.0], "run/peak memory": [9.0 * GIB, 10.0 * GIB]},
}  # fmt: skip


def test_a_line_is_the_run_that_it_says(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + json.dumps(LINE | {"devices": 2}) + "\n", encoding="utf-8")
    first, second = map(question, read_runs(path))
    ask = first.request
    assert (ask.model.layers, ask.model.width, ask.model.kv_heads, ask.model.vocabulary) == (12, 768, 4, 32000)
    assert ask.model.tied and ask.model.gated
    assert (ask.workload.batch_tokens, ask.parallel.micro_batch_sequences, ask.parallel.compile) == (65536, 8, True)
    assert ask.stack.name == "trainwright" and ask.cluster.device.name == "h100-sxm"
    assert first.measured.tokens_per_s == pytest.approx(100_000)
    assert second.measured.tokens_per_s == pytest.approx(50_000)
    assert first.measured.memory_bytes == pytest.approx(10 * GIB)


def test_other_objects_are_no_ledger():
    assert is_ledger(LINE)
    assert not is_ledger(as_run(LINE))
