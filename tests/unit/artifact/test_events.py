"""Events survive kills, reach listeners, and progress stays out of the file."""

from __future__ import annotations

import json

import pytest

from trainwright.artifact.events import Events, read_events
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
