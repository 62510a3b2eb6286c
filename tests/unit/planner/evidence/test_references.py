"""The ledger's runs of a cluster's device with our own stack, as references of its plan."""

import json

import pytest

from fixtures.finished import finished
from trainwright.core.errors import RecipeError
from trainwright.planner.evidence import references as module
from trainwright.planner.evidence.finished import read_ledgers
from trainwright.planner.evidence.references import finished_runs

H100 = {"device": "NVIDIA H100 80GB HBM3"}


@pytest.fixture
def ledger(tmp_path):
    def made(*lines):
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_ledgers([path])

    return made


def test_runs_of_the_device_are_taken_and_others_are_not(ledger, tmp_path):
    runs = ledger(
        finished(tmp_path, run="h", changes=H100),
        finished(tmp_path, run="c"),
        finished(tmp_path, run="a", changes={"device": "NVIDIA A100-SXM4-80GB"}),
    )
    known, used = finished_runs(runs, on="8xh100-sxm", stack="trainwright")
    assert [run.run for run in used] == ["h"]
    run = known[0].placed.run
    assert (run.cluster.device.name, run.stack.name) == ("h100-sxm", "trainwright")
    assert (run.model.width, run.workload.batch_tokens) == (128, 1024)
    assert known[0].log_speed is not None and known[0].log_memory is not None


def test_a_faster_run_says_faster(ledger, tmp_path):
    slow, fast = (
        finished_runs(ledger(finished(tmp_path, slower=each, changes=H100)), on="h100", stack="trainwright")
        for each in (2.0, 1.0)
    )
    assert fast[0][0].log_speed - slow[0][0].log_speed == pytest.approx(0.693147, rel=1e-4)


def test_runs_of_our_stack_say_nothing_of_others(ledger, tmp_path):
    runs = ledger(finished(tmp_path, changes=H100))
    assert finished_runs(runs, on="h100-sxm", stack="megatron-core") == ((), ())
    with pytest.raises(RecipeError, match="unknown software stack"):
        finished_runs(runs, on="h100-sxm", stack="nonsense")


def test_only_the_newest_are_taken(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NEWEST", 2)
    lines = [finished(tmp_path, slower=day, run=str(day), day=day, changes=H100) for day in (1, 2, 3)]
    assert [run.run for run in finished_runs(ledger(*lines), on="h100-sxm", stack="trainwright")[1]] == ["3", "2"]


def test_what_cannot_be_predicted_is_left_out(ledger, tmp_path):
    line = json.loads(finished(tmp_path, changes={"device": "NVIDIA Tesla T4"}))
    line["workload"]["precision"] = "nvfp4"
    assert finished_runs(ledger(json.dumps(line)), on="t4", stack="trainwright") == ((), ())
