from __future__ import annotations

import json

from trainwright.cli.main import main
from trainwright.core.records import to_json
from trainwright.pipeline import runner
from trainwright.planner.evidence.audit import Audit, AuditRow
from trainwright.testing.artifacts import make_artifact

AUDIT = Audit(
    rows=(AuditRow(group="step", quantity="forward", unit="s", predicted=1.0, measured=1.1, ratio=1.1),),
    seconds_ratio=1.1,
    memory_ratio=1.0,
)


def test_the_verdict_is_printed_and_json_is_the_audit(recipe, tmp_path, monkeypatch, capsys):
    record = to_json(AUDIT)
    artifact = make_artifact(tmp_path / "made", "audit", {"audit.json": json.dumps(record).encode()}, {})
    monkeypatch.setattr(runner, "run", lambda recipe, **arguments: {arguments["upto"]: artifact})
    assert main(["audit", recipe, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("Training took 10 % longer than predicted; peak memory was as predicted.")
    assert main(["audit", recipe, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["audit"] == json.loads(json.dumps(record))
