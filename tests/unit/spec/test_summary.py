"""A summary is a file and comes back from it; files of older versions open."""

from __future__ import annotations

import json

import pytest

from trainwright.core.records import from_json, to_json
from trainwright.spec.measures import MemoryUse, PhaseTimes
from trainwright.spec.summary import TrainExecution, TrainSummary

SUMMARY = TrainSummary(
    steps=3,
    tokens=192,
    parameters=10,
    precision="fp32",
    train_loss=1.5,
    validation={"loss": 2.0, "perplexity": None},
    phases=PhaseTimes(forward=1.0, update=0.5),
    step_phases=PhaseTimes(forward=0.3),
    memory=MemoryUse(weights=40),
    process_bytes=7,
    tokens_per_s=64.0,
    flops_per_token=60.0,
    peak_flops_per_s=None,
    mfu=None,
    execution=TrainExecution(device="cpu", threads=None, compiled=False, micro_batch=2, resumes=1),
)


def test_it_comes_back_from_its_file() -> None:
    record = json.loads(json.dumps(to_json(SUMMARY)))
    assert from_json(TrainSummary, record, where="here") == SUMMARY
    assert record["phases"]["forward"] == 1.0 and record["execution"]["micro_batch"] == 2


def test_a_summary_without_process_bytes_opens() -> None:
    record = to_json(SUMMARY)
    del record["process_bytes"]
    assert from_json(TrainSummary, record, where="here").process_bytes is None


def test_seconds_are_those_of_all_phases() -> None:
    assert SUMMARY.seconds == pytest.approx(1.5)
