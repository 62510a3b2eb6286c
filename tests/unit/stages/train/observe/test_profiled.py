"""Steps under the profiler: no gap between phases, memory after each change, files of each rank."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.records import from_json
from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.planner.evidence.profile import FILE, Profile
from trainwright.runtime.timing.clock import Span
from trainwright.stages.train.observe.profiled import (
    _memory_recorded,
    files_of,
    memory_over_time,
    profile_run,
    steps_of,
)


def test_a_step_begins_with_its_batch() -> None:
    spans = [
        Span("other", 0, 1),
        Span("data_wait", 1, 2),
        Span("forward", 2, 4),
        Span("other", 4, 4),
        Span("data_wait", 4, 5),
        Span("backward", 5, 7),
    ]
    steps = [
        [tuple(getattr(each, name) for name in ("phase", "begin_s", "end_s")) for each in step]
        for step in steps_of(spans)
    ]
    assert steps == [[("data_wait", 1, 2), ("forward", 2, 4)], [("data_wait", 4, 5), ("backward", 5, 7)]]


@pytest.mark.parametrize(
    ("kind", "memory"),
    [("cuda", "pickle"), ("rocm", "pickle"), ("cpu", "json"), ("mps", "json"), ("xpu", "json"), ("npu", "json")],
)
def test_the_record_of_a_device_says_whether_its_allocator_writes_snapshots(kind, memory) -> None:
    files = files_of(accelerator(kind).torch_type, 3)
    assert files == {"trace": "trace-rank3.json", "memory": f"memory-rank3.{memory}"}


def test_a_snapshot_is_asked_of_the_module_of_its_kind_of_device(monkeypatch, tmp_path) -> None:
    calls: list[tuple] = []
    memory = SimpleNamespace(
        _record_memory_history=lambda **options: calls.append(("record", options)),
        _dump_snapshot=lambda path: calls.append(("dump", path)),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: {"cuda": SimpleNamespace(memory=memory)}[kind])
    path = tmp_path / "memory.pickle"
    with _memory_recorded(path):
        assert calls == [("record", {})]
    assert calls[1:] == [("dump", str(path)), ("record", {"enabled": None})]


def test_memory_is_added_up_in_the_order_of_time() -> None:
    events = [
        {"name": "aten::mm", "ts": 1.0},
        {"name": "[memory]", "ts": 3_000_000.0, "args": {"Bytes": -30}},
        {"name": "[memory]", "ts": 1_000_000.0, "args": {"Bytes": 100}},
        {"name": "[memory]", "ts": 1_500_000.0, "args": {"Bytes": 20}},
    ]
    assert memory_over_time(events, 7) == {
        "resident_bytes_at_begin": 7,
        "time_s": [0.0, 0.5, 2.0],
        "allocated_bytes": [100, 120, 90],
    }
    assert memory_over_time([], 7)["time_s"] == []


def test_a_few_steps_are_profiled(make_recipe, inputs_for, tmp_path) -> None:
    recipe, out = make_recipe(exec_micro_batch=1), tmp_path / "look"
    events = Events(None, run="tiny")
    context = Context(recipe=recipe, inputs=inputs_for(recipe), out=out, root=tmp_path, events=events)
    profile_run(context, run=None, first=3, last=5)
    document = json.loads((out / FILE).read_text())
    profile = from_json(Profile, document, where="profile")
    (rank,) = profile.ranks
    assert (profile.first, profile.last, len(rank.steps)) == (3, 5, 3)
    for step in rank.steps:
        ends = [each.end_s for each in step]
        assert [each.begin_s for each in step[1:]] == ends[:-1], "phases have no gap"
        assert {"data_wait", "forward", "backward", "update"} <= {each.phase for each in step}
        assert sum(each.phase == "backward" for each in step) == 4, "a micro batch each"
    total = sum(step[-1].end_s - step[0].begin_s for step in rank.steps)
    assert 3 * rank.phases.total_s == pytest.approx(total)
    names = {each.name for each in rank.operators}
    assert names & {"aten::mm", "aten::addmm", "aten::bmm"}
    trace = json.loads((out / rank.files["trace"]).read_text())["traceEvents"]
    assert sum(event.get("name", "").startswith("Optimizer.step") for event in trace) >= 3
    memory = json.loads((out / rank.files["memory"]).read_text())
    assert len(memory["time_s"]) == len(memory["allocated_bytes"]) > 0
    assert memory["resident_bytes_at_begin"] > 0
