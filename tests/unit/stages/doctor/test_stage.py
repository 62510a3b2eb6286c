from dataclasses import replace

from trainwright.artifact.events import Events
from trainwright.hardware.record import read_machine
from trainwright.stages.doctor import run, stage
from trainwright.testing.machine import fake_facts, fake_machine, fake_probes


def test_the_record_is_written_and_progress_told(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "gather", lambda folder: fake_facts())

    def measure(*, threads, folder, say):
        assert (threads, folder) == (4, tmp_path)
        say("the disk")
        return fake_probes()

    monkeypatch.setattr(stage, "measure", measure)
    heard = []
    with Events(None, run="t", listeners=(heard.append,)) as events:
        result = run(None, {}, tmp_path, events)
    assert read_machine(tmp_path / "machine.json") == fake_machine()
    assert [event.text for event in heard] == ["measuring the disk"]
    assert result.summary["device"] == "Ideal CPU"
    assert result.execution == {"threads": 4}


def test_without_torch_there_are_facts_and_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "gather", lambda folder: replace(fake_facts(), torch=None))
    with Events(None, run="t") as events:
        result = run(None, {}, tmp_path, events)
    found = read_machine(tmp_path / "machine.json")
    assert found.probes is None
    assert "torch is not installed" in found.findings[0].what
    assert result.summary["findings"] == 1
