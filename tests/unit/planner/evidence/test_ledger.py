from __future__ import annotations

import json

import pytest

from trainwright.planner.evidence.ledger import (
    FILE,
    is_ledger,
    ledgers_of,
    same_run,
    step_s,
)

GIB = 1 << 30
LINE = {
    "run": "quickstart",
    "finished_unix_s": 0.0,
    "device": "NVIDIA H100 80GB HBM3",
    "devices": 1,
    "threads": None,
    "model": {
        "family": "llama",
        "layers": 12,
        "width": 768,
        "heads": 12,
        "kv_heads": 4,
        "head_size": 64,
        "ffn_width": 2048,
        "vocabulary": 32000,
        "context_tokens": 1024,
        "tied": True,
        "gated": True,
    },
    "workload": {
        "sequence_tokens": 1024,
        "batch_tokens": 65536,
        "precision": "bf16",
        "optimizer": "adamw",
        "recompute": "none",
    },
    "micro_batch": 8,
    "compile": True,
    "rows": {"run/tokens per second": [90_000.0, 100_000.0], "run/peak memory": [9.0 * GIB, 10.0 * GIB]},
}


def test_other_objects_are_no_ledger():
    assert is_ledger(LINE)
    assert not is_ledger({"id": "x", "framework": "y"})


def test_a_step_is_without_what_a_run_does_once():
    rows = {"step/forward": [0.2, 0.3], "step/backward": [0.2, 0.3], "step/other": [0.0, 5.0]}
    assert step_s(LINE["rows"] | rows) == pytest.approx(0.6)
    assert step_s(LINE["rows"]) == 0


def written(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    return path


def test_workspaces_kept_together_learn_from_each_other_and_others_do_not(tmp_path):
    one, two = written(tmp_path / "runs" / "one" / FILE), written(tmp_path / "runs" / "two" / FILE)
    ledger = written(tmp_path / "elsewhere" / FILE)
    written(tmp_path / "else" / FILE)
    assert ledgers_of(tmp_path / "runs" / "new") == (one, two)
    assert ledgers_of(tmp_path / "elsewhere") == (ledger,)
    assert ledgers_of(tmp_path / "absent") == ()


def test_the_same_measurement_is_one_run():
    other = json.loads(json.dumps(LINE))
    other["rows"]["run/tokens per second"] = [1.0, 100_000.0]
    assert same_run(json.dumps(LINE), other)
    other["rows"]["run/tokens per second"] = [1.0, 99_999.0]
    assert not same_run(json.dumps(LINE), other)
    images = {**LINE, "rows": {"run/images per second": [400.0, 410.0]}}
    assert same_run(json.dumps(images), images) and not same_run(json.dumps(LINE), images)
    for text in ("{", "3", json.dumps({**LINE, "run": "x"}), json.dumps({**LINE, "rows": None})):
        assert not same_run(text, LINE)
