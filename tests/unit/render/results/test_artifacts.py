from __future__ import annotations

import json

from fixtures.page import WrittenPage
from trainwright.artifact.store import open_artifact
from trainwright.render.results.artifacts import documents, show
from trainwright.testing.artifacts import make_artifact


def artifact(tmp_path, name, summary):
    path = make_artifact(tmp_path, name, {"file": b"0123456789"}, summary).path
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"execution": {"seconds": 75.0}}))
    return open_artifact(path)


def test_a_row_for_each_stage_then_the_answer_then_where_to_look(tmp_path):
    made = {
        "train": artifact(tmp_path, "train", {"train_loss": 1.25}),
        "serve": artifact(tmp_path, "serve", {"prompt": "def add(", "answer": "a, b)"}),
        "report": artifact(tmp_path, "report", {}),
    }
    page = WrittenPage()
    show(made, page)
    assert [row[:3] for row in page.tables["stage"]] == [(name, "1 min 15 s", "10 B") for name in made]
    assert "def add(▸a, b)" in page.lines
    assert page.lines[-2:] == [f"train: {made['train'].path}", f"report: {made['report'].path / 'report.html'}"]


def test_the_document_has_whole_summaries(tmp_path):
    train = artifact(tmp_path, "train", {"train_loss": 1.25, "text": "x" * 1000})
    (entry,) = documents({"train": train}).values()
    assert entry == {
        "path": train.path,
        "fingerprint": train.manifest.fingerprint,
        "seconds": 75.0,
        "summary": {"train_loss": 1.25, "text": "x" * 1000},
    }
