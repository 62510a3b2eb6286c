import errno
import hashlib
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.hardware.machine import shared
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
    assert "measurements are not kept: " in heard[-1].text and "TRAINWRIGHT_HOME" in heard[-1].text


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A home on a disk that is full: folders and empty files can be made there, and nothing written."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "full"))
    write = shared.write_atomically

    def refused(path, *chunks):
        if path.is_relative_to(tmp_path / "full"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, *chunks)

    monkeypatch.setattr(shared, "write_atomically", refused)
    return tmp_path / "full"


def test_a_full_home_loses_no_measurements(tmp_path, measured, full):
    heard = []
    context = context_in(tmp_path / "one", (heard.append,))
    for _ in range(2):
        assert examine(context.out, context.events, fallback=context.root).probes is not None
    assert measured == ["quick"]
    (line,) = [event.text for event in heard if "kept" in event.text]
    assert f"measurements are kept in {context.root / 'machines'}" in line
    assert str(full) in line and "No space left on device; TRAINWRIGHT_HOME names another home" in line
    assert examine(context.out, context.events).probes is not None
    assert "measurements are not kept: " in heard[-1].text


def test_the_newest_measurements_count_where_the_home_cannot_take_them(tmp_path, measured, monkeypatch, request):
    shared_probes().write(replace(fake_probes(), measured_unix_s=1.0, threads=3))
    home = shared_probes().folder
    request.getfixturevalue("full")
    shutil.copytree(home.parents[1], tmp_path / "full")
    with Events(None, run="t") as events:
        assert examine(tmp_path, events, fallback=tmp_path / "w").probes.threads == 3
        assert examine(tmp_path, events, fallback=tmp_path / "w", fresh=True).probes.threads != 3
        assert examine(tmp_path, events, fallback=tmp_path / "w").probes.threads != 3


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
