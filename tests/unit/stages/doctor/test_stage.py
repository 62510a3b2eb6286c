import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.hardware.machine.record import read_machine
from trainwright.hardware.machine.shared import shared_probes
from trainwright.stages.doctor import examine, run, stage
from trainwright.testing.machine import fake_facts, fake_machine, fake_probes


@pytest.fixture
def measured(monkeypatch):
    """The efforts of measurements of the ideal machine, in order."""
    efforts = []

    def measure(*, threads, folder, thorough, say):
        assert threads == 4
        efforts.append("thorough" if thorough else "quick")
        say("the peak")
        return replace(fake_probes(), thorough=thorough)

    monkeypatch.setattr(stage, "gather", lambda folder: fake_facts())
    monkeypatch.setattr(stage, "measure", measure)
    monkeypatch.setattr(stage, "time", SimpleNamespace(time=lambda: fake_probes().measured_unix_s + 60))
    return efforts


def context_in(folder, listeners=()):
    folder.mkdir()
    return Context(
        recipe=planned_recipe(folder), out=folder, root=folder, events=Events(None, run="t", listeners=listeners)
    )


def test_the_record_is_written_and_progress_told(tmp_path, measured):
    heard = []
    result = run(context_in(tmp_path / "one", (heard.append,)))
    assert read_machine(tmp_path / "one" / "machine.json").probes == replace(fake_probes(), thorough=False)
    assert [event.text for event in heard] == ["measuring the peak"]
    assert result.summary["device"] == "Ideal CPU"
    assert result.execution == {"threads": 4}


def test_another_workspace_copies_the_record_by_its_digest(tmp_path, measured):
    heard = []
    first = run(context_in(tmp_path / "one"))
    second = run(context_in(tmp_path / "two", (heard.append,)))
    assert measured == ["quick"]
    assert [event.text for event in heard] == ["measured 1 min 00 s ago"]
    digest = hashlib.sha256(shared_probes().path.read_bytes()).hexdigest()
    assert first.summary["probes_sha256"] == second.summary["probes_sha256"] == digest


def test_fresh_and_thorough_measure_again(tmp_path, measured):
    with Events(None, run="t") as events:
        examine(tmp_path, events)
        examine(tmp_path, events, fresh=True)
        examine(tmp_path, events, thorough=True)
        assert measured == ["quick", "quick", "thorough"]
        examine(tmp_path, events, thorough=True)
        assert examine(tmp_path, events).probes.thorough
    assert measured == ["quick", "quick", "thorough"], "a thorough record will do for both"


def test_what_was_measured_on_a_busy_machine_is_measured_again_when_it_is_quiet(tmp_path, measured, monkeypatch):
    quiet, measure = stage.measure, []
    monkeypatch.setattr(stage, "measure", lambda **each: replace(quiet(**each), cpu_busy=0.6 if not measure else 0.0))
    monkeypatch.setattr(stage, "gather", lambda folder: replace(fake_facts(), cpu_busy=0.6))
    with Events(None, run="t") as events:
        assert examine(tmp_path, events).probes.doubtful
        assert examine(tmp_path, events).probes.doubtful, "it is as busy as before"
        assert len(measured) == 1
        measure.append("quiet")
        monkeypatch.setattr(stage, "gather", lambda folder: fake_facts())
        assert not examine(tmp_path, events).probes.doubtful
        assert not examine(tmp_path, events).probes.doubtful
    assert len(measured) == 2


def test_without_a_home_the_workspace_keeps_the_record(tmp_path, measured, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "file"))
    heard = []
    context = context_in(tmp_path / "one", (heard.append,))
    assert examine(context.out, context.events, fallback=context.root).probes is not None
    assert examine(context.out, context.events, fallback=context.root).probes is not None
    assert measured == ["quick"]
    examine(context.out, context.events)
    assert "TRAINWRIGHT_HOME" in heard[-2].text


def test_without_torch_there_are_facts_and_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "gather", lambda folder: replace(fake_facts(), torch=None))
    result = run(context_in(tmp_path / "one"))
    machine = read_machine(tmp_path / "one" / "machine.json")
    assert machine.probes is None
    assert "torch is not installed" in machine.findings[0].what
    assert result.summary["findings"] == 1


def test_the_record_of_a_thorough_measurement_is_the_ideal_one(tmp_path, measured):
    with Events(None, run="t") as events:
        assert examine(tmp_path, events, thorough=True) == fake_machine()
