from __future__ import annotations

import json

import pytest

from trainwright.planner.published.ledger import (
    FILE,
    as_run,
    is_ledger,
    ledgers_of,
    same_run,
)
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


def test_speed_is_of_steps_without_what_a_run_does_once():
    steps = {"step/forward": [0.2, 0.3], "step/backward": [0.2, 0.3], "step/other": [0.0, 5.0]}
    found = as_run(LINE | {"rows": LINE["rows"] | steps, "devices": 2})
    assert found["tokens_per_s_per_gpu"] == pytest.approx(65536 / 0.6 / 2)
    assert as_run(LINE)["tokens_per_s_per_gpu"] == 100_000


def written(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    return path


def test_workspaces_kept_together_learn_from_each_other_and_others_do_not(tmp_path):
    one, two = written(tmp_path / "runs" / "one" / FILE), written(tmp_path / "runs" / "two" / FILE)
    own = written(tmp_path / "elsewhere" / FILE)
    written(tmp_path / "else" / FILE)
    assert ledgers_of(tmp_path / "runs" / "new") == (one, two)
    assert ledgers_of(tmp_path / "elsewhere") == (own,)
    assert ledgers_of(tmp_path / "absent") == ()


def test_the_same_measurement_is_one_run():
    other = json.loads(json.dumps(LINE))
    other["rows"]["run/tokens per second"] = [1.0, 100_000.0]
    assert same_run(json.dumps(LINE), other)
    other["rows"]["run/tokens per second"] = [1.0, 99_999.0]
    assert not same_run(json.dumps(LINE), other)
    for text in ("{", "3", json.dumps({**LINE, "run": "x"}), json.dumps({**LINE, "rows": None})):
        assert not same_run(text, LINE)
