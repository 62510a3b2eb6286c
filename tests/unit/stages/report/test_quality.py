"""What a model is worth: against baselines where it is a language model, by label where it classifies."""

from __future__ import annotations

import pytest

from trainwright.stages.report.blocks import Cell, Figure, Missing, Table
from trainwright.stages.report.page import render
from trainwright.stages.report.quality import quality
from trainwright.stages.report.verdict import tiles

CLASSIFIED = {
    "metrics": {"loss": "nats/document", "accuracy": "", "macro_f1": ""},
    "unit": "document",
    "count": 10,
    "loss": 0.41234,
    "accuracy": 0.8,
    "macro_f1": 0.7917,
    "documents": 10,
    "commonest_class_accuracy": 0.6,
    "seconds": 1.0,
    "documents_per_s": 10.0,
    "by_label": [
        {"label": "spam", "documents": 4, "precision": 0.75, "recall": 0.75, "f1": 0.75},
        {"label": "ham", "documents": 6, "precision": None, "recall": 5 / 6, "f1": 0.8333},
    ],
    "confusion": [[3, 1], [1, 5]],
}


@pytest.fixture
def classified(tmp_path, fake):
    evaluation = {"format": 1, "task": "classify", "sequence_tokens": 512, "splits": {"test": CLASSIFIED}}
    training = fake.summary() | {"validation": {name: CLASSIFIED[name] for name in ("loss", "accuracy", "documents")}}
    return fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation, "train": training})


def test_the_model_stands_among_the_baselines_by_rank(record):
    chart = next(block for block in quality(record).blocks if isinstance(block, Figure)).views[0][1]
    assert [label for label, _ in chart.groups] == ["8-gram", "this model", "xz -6", "gzip -9", "5-gram", "3-gram"]


def test_document_sizes_are_open_at_the_top(record):
    table = [block for block in quality(record).blocks if isinstance(block, Table)][-1]
    assert [row[1] for row in table.rows[:3]] == ["0 B to 1 KiB", "1 KiB to 64 KiB", "64 KiB and more"]


def test_a_classifier_is_shown_by_its_metrics_labels_and_confusions(classified):
    blocks = {block.title: block for block in quality(classified).blocks}
    assert blocks["Measured"].columns == ["split", "loss (nats/document)", "accuracy", "macro F1", "measured on"]
    assert blocks["Measured"].rows == [["test", "0.4123", "0.8000", "0.7917", "10 documents"]]
    chart = blocks["Accuracy, test split"].views[0][1]
    assert [(label, bars[0].text) for label, bars in chart.groups] == [
        ("this model", "80 %"),
        ("the commonest class", "60 %"),
    ]
    assert blocks["By label, test split"].rows[1] == ["ham", "6", "", "0.833", "0.833"]
    confusion = blocks["True and predicted label, test split"]
    assert confusion.rows[0] == ["spam", Cell(text="3", tone="good"), Cell(text="1")]


@pytest.mark.parametrize("bits", [{}, {"bits_per_byte": 2.5}, {"bits_per_byte": None}])
def test_a_plug_ins_page_shows_what_every_task_measures(tmp_path, fake, bits):
    metrics = {"loss": "nats/image"} | {name: "bits/byte" for name, value in bits.items() if value is not None}
    split = {"metrics": metrics, "loss": 0.5, "unit": "image", "count": 1200} | bits
    evaluation = {"task": "my_package:TASK", "sequence_tokens": 512, "splits": {"test": split}}
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation})
    (table,) = quality(record).blocks
    assert table.rows == [["test", "0.5000", *("2.5000" for name in metrics if name in bits), "1,200 images"]]
    assert "1,200 images" in render(record)


def test_a_classifiers_page_is_whole(classified):
    page = render(classified)
    assert "Accuracy, test split" in page and "bits per byte" not in page.partition("<nav")[0]


@pytest.mark.parametrize(("commonest", "tone"), [(0.6, "good"), (0.8, "bad")])
def test_a_classifier_is_worth_something_where_it_beats_the_commonest_class(tmp_path, fake, commonest, tone):
    evaluation = {
        "task": "classify",
        "splits": {"test": CLASSIFIED | {"commonest_class_accuracy": commonest}},
        "sequence_tokens": 512,
    }
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation})
    (tile,) = (tile for tile in tiles(record) if tile.question == "What is it worth?")
    assert (tile.answer, tile.tone) == ("80 %", tone)


@pytest.mark.parametrize(
    ("validation", "answer"), [({"loss": 0.4, "accuracy": 0.75}, "75 %"), ({"loss": 0.4}, "0.400")]
)
def test_without_an_evaluation_the_last_validation_of_any_task_counts(tmp_path, fake, validation, answer):
    training = fake.summary() | {"validation": validation}
    record = fake.run(tmp_path, fake.recipe(), without=("evaluate",), replace={"train": training})
    (tile,) = (tile for tile in tiles(record) if tile.question == "What is it worth?")
    assert tile.answer == answer


def test_what_was_not_measured_says_which_command_measures_it(tmp_path, fake):
    (missing,) = quality(fake.run(tmp_path, fake.recipe(), without=("evaluate",))).blocks
    assert isinstance(missing, Missing) and missing.command == "trainwright evaluate RECIPE"
