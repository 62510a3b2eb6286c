import json

from trainwright.artifact.evaluation import FILE
from trainwright.cli import main as cli
from trainwright.cli.recipe import evaluate
from trainwright.testing.artifacts import make_artifact

METRICS = {"loss": {"value": 0.5, "unit": "nats/document"}, "f1": {"value": None, "unit": ""}}
SPLIT = {"metrics": METRICS, "unit": "document", "count": 7, "seconds": 1.0, "record": {}, "details": {}}


def test_the_document_has_the_version_of_the_file(tmp_path, monkeypatch, capsys):
    record = {"format": 2, "splits": {"test": SPLIT}, "completions": []}
    artifact = make_artifact(tmp_path, "evaluate", {FILE: json.dumps(record).encode()})
    monkeypatch.setattr(evaluate, "make", lambda args, output, stage: artifact)
    assert cli.main(["evaluate", "recipe.yaml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["evaluation"]) == ("trainwright.evaluate/2", record)
    assert cli.main(["evaluate", "recipe.yaml"]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("test")]
    assert row == ["test", "0.5000", "unknown", "7", "documents"]
