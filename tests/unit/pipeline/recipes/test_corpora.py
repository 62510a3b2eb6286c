"""Which data an answer names, and what a look at it tells."""

from __future__ import annotations

import shutil

import pytest

from fixtures.answers import write_answers
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.pipeline.recipes.corpora import ColumnNeeded, chosen_data, without_files
from trainwright.pipeline.recipes.kinds import KINDS

NONE = {"text": None, "label": None}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    write_answers(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chosen(answer, kind, **columns):
    return chosen_data(answer, KINDS[kind], {**NONE, **columns})


def test_a_table_is_read_as_its_name_says(folder) -> None:
    data = chosen("tickets.csv", "classify")
    assert data.source == {"kind": "csv", "paths": ["tickets.csv"], "text_column": "body", "label_column": "queue"}
    assert data.labels == ("billing", "sales", "technical")
    (folder / "many").mkdir()
    shutil.copy("tickets.csv", "many/a.csv")
    assert chosen("many", "classify", label="queue").source["kind"] == "csv"
    assert chosen("*.csv", "pretrain").source == {"kind": "csv", "paths": ["*.csv"], "text_column": "body"}


@pytest.mark.parametrize(
    ("answer", "kind", "source"),
    [
        ("texts", "pretrain", {"kind": "files", "paths": ["texts"]}),
        ("texts/*.txt", "pretrain", {"kind": "files", "paths": ["texts/*.txt"]}),
        ("texts/1.txt", "pretrain", {"kind": "text", "paths": ["texts/1.txt"]}),
        ("chats.jsonl", "chat", {"kind": "chats", "paths": ["chats.jsonl"]}),
        ("pairs.jsonl", "preference", {"kind": "preferences", "paths": ["pairs.jsonl"]}),
        ("pictures", "classify-images", {"kind": "images", "paths": ["pictures"]}),
    ],
)
def test_each_kind_of_data(answer, kind, source) -> None:
    assert chosen(answer, kind).source == source


def test_a_remote_table_is_taken_at_its_word() -> None:
    data = chosen("s3://bucket/a.parquet", "pretrain", text="body")
    assert data.source == {"kind": "parquet", "paths": ["s3://bucket/a.parquet"], "text_column": "body"}
    assert not data.survey.whole


def test_sources_without_files_are_those_that_the_task_can_learn_from() -> None:
    assert without_files("documents") == ("python-stdlib", "python-stdlib-packages")
    assert without_files("documents-with-labels") == ("python-stdlib-packages",)
    assert "python-stdlib-chats" in without_files("chats") and without_files("preferences") == ("python-docstrings",)
    assert "sklearn-digits" in without_files("images") and "sklearn-digits" not in without_files("documents")


def test_a_column_that_no_name_tells_is_asked_for() -> None:
    with pytest.raises(ColumnNeeded) as caught:
        chosen("pairs.jsonl", "pretrain")
    assert (caught.value.role, caught.value.columns) == ("text", ("prompt", "chosen", "rejected"))
    assert chosen("pairs.jsonl", "pretrain", text="prompt").source["text_key"] == "prompt"


@pytest.mark.parametrize(
    ("answer", "kind", "columns", "line"),
    [
        ("", "chat", {}, "data: no data is named (expected chats (*.jsonl or *.parquet), or python-stdlib-chats)"),
        ("chat.jsonl", "chat", {}, "data: no such file or folder (seen 'chat.jsonl'"),
        ("chat.jsonl", "chat", {}, "did you mean 'chats.jsonl'?"),
        ("python-stdlb", "pretrain", {}, "did you mean 'python-stdlib'?"),
        ("texts/nine.txt", "pretrain", {}, "no such file"),
        ("none/nine.txt", "pretrain", {}, "no such file"),
        ("*.parquet", "pretrain", {"text": "x"}, "data: "),
        ("tickets.csv", "chat", {}, "data: no chats here"),
        ("texts", "classify", {}, "data: texts without labels"),
        ("tickets.csv", "classify-images", {}, "data: images lie in folders"),
        (
            "tickets.csv",
            "classify",
            {"text": "bdy"},
            "text: no such column (seen 'bdy', expected one of id, body, queue)",
        ),
        ("tickets.csv", "classify", {"text": "bdy"}, "did you mean 'body'?"),
        ("tickets.csv", "classify", {"label": "id"}, "label: so many labels are no classes (seen 120 of 120 texts"),
        ("tickets.csv", "pretrain", {"label": "queue"}, "label: this kind learns no labels"),
        ("texts", "pretrain", {"text": "body"}, "text: this data has no columns to choose"),
        ("pictures/cat", "classify-images", {}, "data: at least two classes can be told apart"),
        ("pairs.jsonl", "chat", {}, "data: no record of this data can be learnt from"),
    ],
)
def test_what_is_no_answer_is_one_line(answer, kind, columns, line) -> None:
    with pytest.raises(TrainwrightError) as caught:
        chosen(answer, kind, **columns)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_a_table_of_one_class_teaches_nothing(folder) -> None:
    (folder / "one.csv").write_text("text,label\na,x\nb,x\n")
    with pytest.raises(RecipeError, match="at least two classes can be told apart"):
        chosen("one.csv", "classify")
