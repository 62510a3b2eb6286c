import json
import subprocess
import sys
from dataclasses import replace

import pytest

from fixtures.finished import finished
from fixtures.planned_recipe import TEXT, planned_recipe
from trainwright.artifact.workspace import Workspace
from trainwright.cli import main as cli
from trainwright.hardware.machine.record import Machine, machine_text
from trainwright.hardware.machine.shared import shared_probes
from trainwright.pipeline import planning
from trainwright.pipeline.graph import STAGES
from trainwright.pipeline.runner import address
from trainwright.spec.manifest import Manifest
from trainwright.testing.machine import fake_facts, fake_machine, fake_probes


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(TEXT)
    return "r.yaml"


@pytest.fixture
def on(monkeypatch):
    return lambda machine: monkeypatch.setattr(planning, "machine_of", lambda recipe, root: machine)


def test_the_verdict_comes_first_and_everything_it_rests_on_after(recipe, on, capsys):
    on(fake_machine())
    assert cli.main(["plan", recipe]) == 0
    first = capsys.readouterr().out
    assert "memory |" in first and f"next: trainwright run {recipe}" in first and "memory at the peak" not in first
    assert cli.main(["plan", recipe, "--verbose"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fits: ")
    for word in ("memory at the peak", "backward", "MFU", "h100-sxm", "micro batch 4", "rests on", "probed"):
        assert word in out


def test_what_does_not_fit_exits_with_1_and_says_how_it_would(recipe, on, capsys):
    on(fake_machine(memory_bytes=100 << 20))
    assert cli.main(["plan", recipe]) == 1
    assert capsys.readouterr().out.startswith("does not fit: needs ")


@pytest.mark.parametrize("on_cluster", [(), ("--on", "2x1xhere")])
def test_a_device_that_is_not_here_is_refused_at_the_line_that_asks_for_it(recipe, on, capsys, tmp_path, on_cluster):
    on(fake_machine())
    (tmp_path / recipe).write_text(TEXT.replace("100 steps}", "100 steps,\n  exec: {device: cuda}}"))
    line = TEXT.count("\n") + 1
    assert cli.main(["plan", recipe, *on_cluster]) != 0
    assert f"error: r.yaml:{line}:10: train.exec.device: no CUDA device here" in capsys.readouterr().err


def test_json_holds_the_whole_plan(recipe, on, capsys):
    on(fake_machine())
    assert cli.main(["plan", recipe, "train.duration=7 steps", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "trainwright.plan/1"
    assert document["plan"]["workload"]["steps"] == 7


def test_an_unmeasured_machine_is_planned_and_told_how_to_measure(recipe, on, capsys):
    on(Machine(facts=fake_facts()))
    assert cli.main(["plan", recipe]) == 0
    assert "trainwright doctor r.yaml" in capsys.readouterr().err


def test_facts_of_this_machine_are_enough(recipe):
    code = (
        "import sys; from trainwright.cli.main import main; code = main(['plan', 'r.yaml', '-q'])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode in (0, 1)


def ledger_at(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def seconds(capsys, *arguments):
    assert cli.main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plan"]["estimate"]["seconds"]


def test_finished_runs_of_workspaces_beside_are_learnt_from_unless_told_not_to(recipe, on, capsys, tmp_path):
    on(fake_machine())
    before = seconds(capsys, recipe)
    ledger_at(tmp_path / "runs" / "other" / "ledger.jsonl", finished(tmp_path, slower=1.2), "broken")
    after = seconds(capsys, recipe)
    assert after["mid"] > 1.1 * before["mid"]
    assert after["high"] / after["low"] < before["high"] / before["low"]
    assert seconds(capsys, recipe, "--calibrate", "none") == before
    assert cli.main(["plan", recipe]) == 0
    text = capsys.readouterr()
    assert "calibrated by 1 run of the ledger, newest 2026-11-01" in text.out
    assert "ledger, line skipped: " in text.err and "ledger.jsonl:2: " in text.err


def test_a_ledger_may_be_named_and_must_have_a_run(recipe, on, capsys, tmp_path):
    on(fake_machine())
    before = seconds(capsys, recipe)
    path = ledger_at(tmp_path / "kept.jsonl", finished(tmp_path, slower=1.2))
    assert seconds(capsys, recipe, "--calibrate", path)["mid"] > 1.1 * before["mid"]
    for text in ("", '{"id": "mine"}'):
        assert cli.main(["plan", recipe, "--calibrate", ledger_at(tmp_path / "none.jsonl", text)]) == 4
        error = capsys.readouterr().err
        assert "no finished run in this file" in error and "for other runs say the machine: --on" in error
    assert cli.main(["plan", recipe, "--calibrate", "absent.jsonl"]) == 2
    assert "absent.jsonl: no such file" in capsys.readouterr().err


def test_what_was_measured_for_another_recipe_is_used(recipe, capsys):
    assert cli.main(["plan", recipe]) == 0
    assert "trainwright doctor r.yaml" in capsys.readouterr().err
    shared_probes().write(fake_probes())
    assert cli.main(["plan", recipe]) == 0
    text = capsys.readouterr()
    assert "trainwright doctor r.yaml" not in text.err and "Ideal CPU" in text.out


def test_the_record_of_the_workspace_comes_first(recipe, capsys, tmp_path):
    """A workspace stays with the numbers that it was planned by."""
    fingerprint = address(STAGES["doctor"], planned_recipe(tmp_path), {}, tmp_path).fingerprint
    workspace = Workspace(tmp_path / "runs" / "planned")
    draft = workspace.draft("doctor", fingerprint)
    (draft / "machine.json").write_bytes(machine_text(fake_machine()))
    manifest = Manifest(
        kind="machine",
        stage="doctor",
        stage_version=3,
        fingerprint=fingerprint,
        identity={},
        inputs={},
        files=(),
        summary={},
    )
    workspace.commit(draft, manifest)
    shared_probes().write(replace(fake_probes(), device_name="Another CPU"))
    assert cli.main(["plan", recipe]) == 0
    assert "Ideal CPU" in capsys.readouterr().out
