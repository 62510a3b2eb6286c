"""Events survive kills, reach listeners, and progress stays out of the file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.artifact.events import Events, read_events, worked_s
from trainwright.core.errors import DataError


def test_what_is_written_is_read_back(tmp_path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    heard = []
    with Events(path, run="r", listeners=(heard.append,), rank=2) as events:
        events.metric("train/loss", 1.5, unit="nats/token", step=3)
        events.progress("train", 3, total=10, unit="steps")
        events.message("héllo\nworld")
        events.emit("stage", "data", 0.0, text="started")
    found = list(read_events(path))
    assert found == [event for event in heard if event.kind != "progress"]
    assert [event.kind for event in heard] == ["metric", "progress", "message", "stage"]
    assert found[0].rank == 2 and found[0].step == 3 and found[1].text == "héllo\nworld"
    assert len(path.read_text().splitlines()) == 3


def test_a_torn_last_line_is_skipped_and_appended_after(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    with Events(path, run="r") as events:
        events.metric("a", 1)
    with path.open("a") as stream:
        stream.write('{"run": "r", "t_s": 1, "kind": "met')
    with Events(path, run="r") as events:
        events.metric("b", 2)
    assert [event.name for event in read_events(path)] == ["a", "b"]


@pytest.mark.parametrize("line", ['{"other": 1}', "[]", "null", '{"run": "r"}', "\ufffd\ufffd"])
def test_lines_that_are_no_events_are_skipped(tmp_path, line) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line + "\n")
    assert list(read_events(path)) == []


def test_defaults_are_not_repeated_on_each_line(tmp_path) -> None:
    with Events(tmp_path / "e", run="r") as events:
        events.metric("a", 1)
    assert set(json.loads((tmp_path / "e").read_text())) == {"run", "t_s", "kind", "name", "value"}


def test_without_a_file(tmp_path) -> None:
    with Events(None, run="r") as events:
        events.metric("a", 1)
    with pytest.raises(DataError, match="no events here"):
        list(read_events(tmp_path / "absent"))


def steps_of(path) -> list[tuple[str, int | None]]:
    return [(event.name, event.step) for event in read_events(path)]


def test_what_a_resume_undoes_is_left_out_and_stays_in_the_file(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    with Events(path, run="r") as events:
        for step in (1, 2, 3):
            events.metric("loss", float(step), step=step)
        events.message("hello")
    before = path.read_bytes()
    with Events(path, run="r") as events:
        events.emit("resume", "train", 1, step=1)
        events.metric("loss", 2.5, step=2)
    assert steps_of(path) == [("loss", 1), ("", None), ("train", 1), ("loss", 2)]
    assert path.read_bytes().startswith(before), "append-only"


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 5))
def test_any_interruptions_leave_each_step_once_and_the_last_one_told(tmp_path_factory, resumes, length) -> None:
    """Against a list that is cut as the run goes: what was told of a step before it is done again is gone."""
    path = tmp_path_factory.mktemp("events") / "e.jsonl"
    expected: list[tuple[int, float]] = []
    value, done = 0.0, 0
    with Events(path, run="r") as events:
        for start in [0, *resumes]:
            start = min(start, done)
            events.emit("resume", "train", start, step=start)
            expected = [(step, told) for step, told in expected if step <= start]
            for step in range(start + 1, start + length + 1):
                value += 1
                events.metric("loss", value, step=step)
                expected.append((step, value))
                done = step
    assert [(event.step, event.value) for event in read_events(path) if event.kind == "metric"] == expected


def test_the_time_of_work_is_that_of_all_sessions_without_the_nights_between(tmp_path) -> None:
    lines = [
        (1000.0, "message", "", 0.0),
        (1000.5, "metric", "train/start_s", 20.0),  # its first step could be made at second 1000.5
        (1060.0, "metric", "train/loss", 3.0),
        (9000.0, "resume", "train", 10.0),
        (9000.0, "metric", "train/start_s", 5.0),
        (9030.0, "metric", "train/loss", 2.0),
        (9090.0, "restart", "train", 70.0),  # a fault was found a minute after the last line
        (9100.0, "resume", "train", 20.0),
        (9100.0, "metric", "train/start_s", 10.0),  # since the fault was found
        (9105.0, "resume", "train", 15.0),  # a step back takes no time out
        (9106.0, "message", "", 0.0),
        (9110.0, "metric", "train/loss", 1.0),
        (9110.0, "restart", "train", 70.0),  # and the command was killed before the ranks were there
        (20000.0, "resume", "train", 30.0),
        (20000.0, "metric", "train/start_s", 5.0),
        (20003.0, "metric", "train/loss", 1.0),
    ]
    path = tmp_path / "events.jsonl"
    records = [dict(zip(("t_s", "kind", "name", "value"), line, strict=True)) | {"run": "r"} for line in lines]
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + "torn")
    assert worked_s(path) == ((20 + 60) + (5 + 110) + (5 + 3), 20003)
    assert worked_s(tmp_path / "none.jsonl") == (0, 0)
