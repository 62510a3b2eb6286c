import json
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from fixtures.finished import summary_of
from fixtures.planned_recipe import plan_of, planned_recipe
from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.core.errors import DataError
from trainwright.core.records import to_json
from trainwright.stages.audit import run
from trainwright.testing.artifacts import make_artifact


@pytest.fixture
def audited(tmp_path):
    plan = plan_of(planned_recipe(tmp_path))
    planned = make_artifact(tmp_path, "plan", {"plan.json": json.dumps(to_json(plan)).encode()})
    out = tmp_path / "workspace" / "audit.partial"
    out.mkdir(parents=True)

    def call(fingerprint="abc", *, damage=lambda plan, train: None, **changes):
        summary = to_json(summary_of(plan, slower=1.1)) | {"tokens_per_s": 1.0}
        shape = replace(plan.model, ffn_width=4 * plan.model.ffn_width)
        files = {"summary.json": summary | changes, "model.json": to_json(shape)}
        shelf = Path(mkdtemp(dir=tmp_path))  # an artefact is never made over another
        trained = make_artifact(shelf, "train", {name: json.dumps(file).encode() for name, file in files.items()})
        trained = replace(trained, manifest=replace(trained.manifest, fingerprint=fingerprint))
        damage(planned.path / "plan.json", trained.path / "summary.json")
        with Events(None, run="t") as events:
            inputs = {"plan": planned, "checkpoint": trained}
            context = Context(recipe=planned_recipe(tmp_path), inputs=inputs, out=out, root=out.parent, events=events)
            return run(context), out

    return call


def test_rows_are_written_and_the_ledger_gets_its_line(audited):
    result, out = audited()
    assert result.summary["seconds_ratio"] == pytest.approx(1.1, abs=1e-3)
    assert result.summary["memory_ratio"] == pytest.approx(1.0)
    rows = json.loads((out / "audit.json").read_text())["rows"]
    assert {"run", "step", "whole run", "memory"} == {row["group"] for row in rows}
    (line,) = (out.parent / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["run"] == "abc"


def test_the_ledger_has_the_model_that_was_trained_and_its_steps(audited, tmp_path):
    _, out = audited(steps=77)
    (line,) = (out.parent / "ledger.jsonl").read_text().splitlines()
    planned = plan_of(planned_recipe(tmp_path))
    assert json.loads(line)["model"]["ffn_width"] == 4 * planned.model.ffn_width
    assert json.loads(line)["workload"]["steps"] == 77


def test_a_run_that_is_audited_again_counts_once_and_one_that_is_made_again_twice(audited):
    audited()
    audited()
    audited("another")
    _, out = audited(tokens_per_s=2.0)
    lines = [json.loads(line) for line in (out.parent / "ledger.jsonl").read_text().splitlines()]
    assert [line["run"] for line in lines] == ["abc", "another", "abc"]
    assert [line["rows"]["run/tokens per second"][1] for line in lines] == [1.0, 1.0, 2.0]


def test_lines_that_are_no_runs_are_kept_as_they_are(audited):
    _, out = audited()
    ledger = out.parent / "ledger.jsonl"
    broken = b'{"run": "abc", "rows"\n[1]\n\xff\xfe\n'
    ledger.write_bytes(broken + ledger.read_bytes())
    audited("another")
    assert ledger.read_bytes().startswith(broken)
    assert len(ledger.read_bytes().splitlines()) == 5


def test_a_summary_that_names_unknown_phases_is_refused(audited):
    with pytest.raises(DataError, match=r"summary\.json: not a valid TrainSummary .*phases\.sleeping"):
        audited(phases={"sleeping": 1.0})


@pytest.mark.parametrize("name", ["plan.json", "summary.json"])
def test_a_damaged_input_is_named_and_leaves_the_ledger_alone(audited, tmp_path, name):
    def damage(*paths):
        (path,) = (path for path in paths if path.name == name)
        path.write_text(path.read_text().replace("1", "2"))

    with pytest.raises(DataError, match=rf"{name}: damaged file: its sha256"):
        audited(damage=damage)
    assert not (tmp_path / "workspace" / "ledger.jsonl").exists()
