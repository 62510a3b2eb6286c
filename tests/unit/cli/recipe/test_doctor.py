import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.cli import main as cli
from trainwright.hardware.machine.record import Machine, machine_text
from trainwright.stages.doctor import stage
from trainwright.testing.machine import fake_facts, fake_probes


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Doctor of the ideal machine; counts how often it was measured."""
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "gather", lambda folder: fake_facts())
    monkeypatch.setattr(stage, "measure", lambda **kwargs: calls.append(kwargs) or fake_probes())
    monkeypatch.setattr(stage, "time", SimpleNamespace(time=lambda: fake_probes().measured_unix_s))
    (tmp_path / "r.yaml").write_text(
        "name: r\nmodel: {layers: 1, width: 64, heads: 1}\ndata: {sources: [{kind: python-stdlib}]}\n"
    )
    return calls


def test_without_a_recipe_it_measures_and_prints(measured, capsys, tmp_path):
    assert cli.main(["doctor", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "Ideal CPU, 4 cores" in text
    assert "matrix products, bf16" in text
    assert "nothing to mend" in text
    assert [path.name for path in tmp_path.iterdir()] == ["r.yaml"]


def test_with_a_recipe_the_record_is_kept_and_measured_once(measured, capsys):
    for _ in range(2):
        assert cli.main(["doctor", "r.yaml", "--json"]) == 0
    assert len(measured) == 1
    assert cli.main(["doctor", "r.yaml", "--fresh", "--quiet", "--json"]) == 0
    assert len(measured) == 2


def test_what_is_measured_belongs_to_the_machine(measured, capsys, tmp_path):
    """Another recipe, and no recipe at all, take the same measurements; a plan rests on them before doctor has run."""
    assert cli.main(["doctor", "r.yaml", "--json"]) == 0
    assert cli.main(["doctor", "r.yaml", "name=other", "--json"]) == 0
    assert cli.main(["doctor", "--quiet"]) == 0
    assert len(measured) == 1
    capsys.readouterr()
    assert cli.main(["plan", "r.yaml", "name=third", "--json"]) == 0
    assumptions = json.loads(capsys.readouterr().out)["plan"]["estimate"]["assumptions"]
    assert "probed" in {entry["origin"] for entry in assumptions}
    assert not (tmp_path / "runs" / "third").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_what_is_kept_is_shown_where_nothing_can_be_written(measured, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir("/proc")
    assert cli.main(["doctor"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: /proc: cannot write") and line.endswith("; choose another place with --workspace")
    assert cli.main(["doctor", "--workspace", str(tmp_path / "disk")]) == 0
    assert len(measured) == 1 and measured[0]["folder"].is_relative_to(tmp_path / "disk")
    assert cli.main(["doctor"]) == 0
    assert "Ideal CPU, 4 cores" in capsys.readouterr().out
    assert len(measured) == 1


def test_fresh_measures_again_and_renews_the_workspace(measured, capsys):
    assert cli.main(["doctor", "r.yaml", "--json"]) == 0
    assert cli.main(["doctor", "r.yaml", "--fresh", "--quiet", "--json"]) == 0
    assert [call["thorough"] for call in measured] == [False, False]


def test_thorough_is_measured_once(measured, capsys):
    for _ in range(2):
        assert cli.main(["doctor", "--thorough", "--quiet"]) == 0
    assert [call["thorough"] for call in measured] == [True]


def test_a_damaged_record_is_named_by_doctor_and_plan(measured, capsys, tmp_path):
    assert cli.main(["doctor", "r.yaml", "--json"]) == 0
    (path,) = tmp_path.glob("runs/r/doctor-*/machine.json")
    path.write_text("{}")
    capsys.readouterr()
    for name in ("doctor", "plan"):
        assert cli.main([name, "r.yaml", "--quiet"]) == 4
        (line,) = capsys.readouterr().err.splitlines()
        assert "machine.json: damaged file: its size changed" in line


def test_json_is_the_record(measured, capsys):
    assert cli.main(["doctor", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record.pop("schema") == "trainwright.doctor/1"
    assert record == json.loads(machine_text(Machine(facts=fake_facts(), probes=fake_probes())))
