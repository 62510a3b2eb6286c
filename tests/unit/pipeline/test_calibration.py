"""Measured runs that a user names: of any software for another machine, a ledger for this one."""

from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError, RecipeError
from trainwright.pipeline.calibration import NOTHING, ledger_of, with_runs

RUN = {"model": "llama3-8b", "seq_len": 8192, "gpu": "h100", "n_gpus": 8, "tokens_per_s_per_gpu": 6000}


def runs(path, *software):
    path.write_text(json.dumps([RUN | {"framework": name} for name in software]), encoding="utf-8")
    return path


def test_software_that_all_runs_share_is_asked_about_unless_another_is(tmp_path):
    shared = runs(tmp_path / "shared.json", "torchtitan", "torchtitan")
    found = with_runs({"tokens": 5}, shared)
    assert (found["stack"], found["tokens"], len(found["references"])) == ("torchtitan", 5, 2)
    assert with_runs({"stack": "deepspeed"}, shared)["stack"] == "deepspeed"
    assert "stack" not in with_runs({}, runs(tmp_path / "mixed.json", "torchtitan", "deepspeed"))
    with pytest.raises(RecipeError, match="gone.json: no such file"):
        with_runs({}, tmp_path / "gone.json")


def test_no_ledger_is_read_where_none_is_wanted_or_there(tmp_path):
    assert ledger_of(NOTHING, workspace=tmp_path / "runs" / "any") is None
    assert ledger_of(None, workspace=tmp_path / "runs" / "any") is None


def test_a_ledger_that_is_named_has_a_run(tmp_path):
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="no finished run in this file .seen nothing") as caught:
        ledger_of(tmp_path / "empty.jsonl", workspace=tmp_path)
    assert caught.value.field == "calibrate"
