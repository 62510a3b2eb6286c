from __future__ import annotations

from dataclasses import replace

from fixtures.page import WrittenPage
from trainwright.render.results.artifacts import documents, show
from trainwright.testing.artifacts import make_artifact


def artifact(tmp_path, name, summary):
    made = make_artifact(tmp_path, name, {"file": b"0123456789"}, summary)
    return replace(made, manifest=replace(made.manifest, execution={"seconds": 75.0}))


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


def test_a_question_in_a_chat_is_no_text_to_go_on_from(tmp_path):
    page = WrittenPage()
    show({"serve": artifact(tmp_path, "serve", {"chat": True, "prompt": "Why?", "answer": "So."})}, page)
    assert "Why? ▸ So." in page.lines


def test_the_document_has_whole_summaries(tmp_path):
    train = artifact(tmp_path, "train", {"train_loss": 1.25, "text": "x" * 1000})
    (entry,) = documents({"train": train}).values()
    assert entry == {
        "path": train.path,
        "fingerprint": train.manifest.fingerprint,
        "seconds": 75.0,
        "summary": {"train_loss": 1.25, "text": "x" * 1000},
    }
