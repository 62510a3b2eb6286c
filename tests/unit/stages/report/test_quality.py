"""What a model is worth: against baselines where it is a language model, by label where it classifies."""

from __future__ import annotations

import pytest

from trainwright.core.errors import DataError
from trainwright.stages.report.blocks import Cell, Figure, Missing, Table
from trainwright.stages.report.page import render
from trainwright.stages.report.quality import quality
from trainwright.stages.report.verdict import tiles

CLASSIFIED = {
    "metrics": {
        "loss": {"value": 0.41234, "unit": "nats/document"},
        "accuracy": {"value": 0.8, "unit": ""},
        "macro_f1": {"value": 0.7917, "unit": ""},
    },
    "unit": "document",
    "count": 10,
    "seconds": 1.0,
    "record": {"commonest_class_accuracy": 0.6},
    "details": {
        "by_label": [
            {"label": "spam", "documents": 4, "precision": 0.75, "recall": 0.75, "f1": 0.75},
            {"label": "ham", "documents": 6, "precision": None, "recall": 5 / 6, "f1": 0.8333},
        ],
        "confusion": {"labels": ["spam", "ham"], "counts": [[3, 1], [1, 5]]},
    },
}


def validated(**values):
    """What a training stores of its last validation."""
    metrics = {name: {"value": value, "unit": ""} for name, value in values.items()}
    return {"metrics": metrics, "unit": "document", "count": 10, "record": {}}


@pytest.fixture
def classified(tmp_path, fake):
    evaluation = {"format": 2, "task": "classify", "sequence_tokens": 512, "splits": {"test": CLASSIFIED}}
    training = fake.summary() | {"validation": validated(loss=0.41234, accuracy=0.8)}
    return fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation, "train": training})


def test_the_model_stands_among_the_baselines_by_rank(record):
    chart = next(block for block in quality(record).blocks if isinstance(block, Figure)).views[0][1]
    assert [label for label, _ in chart.groups] == ["8-gram", "this model", "xz -6", "gzip -9", "5-gram", "3-gram"]


def test_answers_to_questions_are_drawn_and_the_furthest_listed(tmp_path, fake):
    metrics = {"exact_match": {"value": 0.25, "unit": ""}}
    furthest = [{"question": "1+1?", "said": "3", "right": "2", "word_f1": 0.0}]
    asked = {"count": 4, "metrics": metrics, "furthest": furthest, "too_long": 0}
    evaluation = {"format": 2, "task": "classify", "splits": {"test": CLASSIFIED}, "questions": asked}
    section = quality(fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation}))
    chart, table = section.blocks[-2].views[0][1], section.blocks[-1]
    assert (chart.title, chart.groups[0][0]) == ("Answers to 4 questions", "right to the letter")
    assert chart.groups[0][1][0].text == "25 %"
    assert table.rows == [["1+1?", "3", "2", "0"]]


def test_what_benchmarks_measured_is_a_table(tmp_path, fake):
    measured = {"mine": {"count": 40, "version": "1", "metrics": {"acc": {"value": 0.25, "stderr": 0.07}}}}
    evaluation = {"format": 2, "task": "classify", "splits": {"test": CLASSIFIED}}
    evaluation["benchmarks"] = {"harness": "lm-eval 1.2", "few_shot": None, "tasks": measured}
    table = quality(fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation})).blocks[-1]
    assert table.title == "Benchmarks of lm-eval 1.2"
    assert table.rows == [("mine", "acc", "0.2500", "0.0700", "40")]


def test_document_sizes_are_open_at_the_top(record):
    table = [block for block in quality(record).blocks if isinstance(block, Table)][-1]
    assert table.columns == ["from", "to", "documents", "text", "bits per byte"]
    assert [row[:2] for row in table.rows] == [["0 B", "1 KiB"], ["1 KiB", "64 KiB"], ["64 KiB", ""]]


def test_a_classifier_is_shown_by_its_metrics_labels_and_confusions(classified):
    blocks = {block.title: block for block in quality(classified).blocks}
    assert blocks["Measured"].columns[:4] == ["split", "loss (nats/document)", "accuracy", "macro F1"]
    assert blocks["Measured"].columns[4:] == ["measured on", "commonest class accuracy", "speed"]
    assert blocks["Measured"].rows == [["test", "0.4123", "0.8000", "0.7917", "10 documents", "0.6", "10 documents/s"]]
    chart = blocks["Accuracy, test split"].views[0][1]
    assert [(label, bars[0].text) for label, bars in chart.groups] == [
        ("this model", "80 %"),
        ("the commonest class", "60 %"),
    ]
    assert blocks["By label, test split"].rows[1] == ["ham", "6", "", "0.8333", "0.8333"]
    confusion = blocks["Confusion, test split"]
    assert confusion.rows[0] == ["spam", Cell(text="3", tone="good"), Cell(text="1")]


def plug_in(**split):
    """An evaluation of a task that the project does not have."""
    whole = {"metrics": {"loss": {"value": 0.5, "unit": "nats/image"}}, "unit": "image", "count": 1200, "seconds": 2.0}
    whole |= {"record": {}, "details": {}} | split
    return {"format": 2, "task": "my_package:TASK", "sequence_tokens": 512, "splits": {"test": whole}}


@pytest.mark.parametrize("bits", [{}, {"bits_per_byte": {"value": 2.5, "unit": "bits/byte"}}])
def test_a_plug_ins_page_shows_what_every_task_measures(tmp_path, fake, bits):
    evaluation = plug_in(metrics={"loss": {"value": 0.5, "unit": "nats/image"}, **bits})
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation})
    (table,) = quality(record).blocks
    assert table.rows == [["test", "0.5000", *("2.5000" for _ in bits), "1,200 images", "600 images/s"]]
    assert "1,200 images" in render(record)


def test_a_plug_ins_tables_and_curves_are_shown_whatever_they_are_called(tmp_path, fake):
    curve = {"title": "By width", "x": "width", "x_title": "pixels", "y": "loss", "y_title": "nats"}
    details = {
        "confusion": [{"edge": "upper", "pixels": 1234, "loss": None}],
        "by_label": curve | {"rows": [{"width": 8, "loss": 0.7}, {"width": 16, "loss": 0.25}]},
        "by_context": {"labels": ["cat", "dog"], "counts": [[3, 1], [0, 2]]},
        "anything": {"else": 1},
    }
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": plug_in(details=details, record={"crop": "none"})})
    first, figure, rows, square = quality(record).blocks
    assert first.columns[-2:] == ["crop", "speed"] and first.rows[0][-2:] == ["none", "600 images/s"]
    (series,) = figure.views[0][1].series
    assert (list(series.xs), list(series.ys)) == ([8, 16], [0.7, 0.25])
    assert (rows.columns, rows.rows) == (["edge", "pixels", "loss"], [["upper", "1,234", ""]])
    assert square.rows[1] == ["dog", Cell(text="0"), Cell(text="2", tone="good")]
    assert "By width" in render(record)


def test_an_evaluation_of_an_earlier_version_is_refused_by_its_form(tmp_path, fake):
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": plug_in() | {"format": 1}})
    with pytest.raises(DataError, match=r"evaluation\.json: unknown format of evaluation \(seen 1, expected 2"):
        quality(record)


def test_a_classifiers_page_is_whole(classified):
    page = render(classified)
    assert "Accuracy, test split" in page and "bits per byte" not in page.partition("<nav")[0]


@pytest.mark.parametrize(("commonest", "tone"), [(0.6, "good"), (0.8, "bad")])
def test_a_classifier_is_worth_something_where_it_beats_the_commonest_class(tmp_path, fake, commonest, tone):
    evaluation = {
        "format": 2,
        "task": "classify",
        "splits": {"test": CLASSIFIED | {"record": {"commonest_class_accuracy": commonest}}},
        "sequence_tokens": 512,
    }
    record = fake.run(tmp_path, fake.recipe(), replace={"evaluate": evaluation})
    (tile,) = (tile for tile in tiles(record) if tile.question == "What is it worth?")
    assert (tile.answer, tile.tone) == ("80 %", tone)


@pytest.mark.parametrize(
    ("validation", "answer"),
    [(validated(loss=0.4, accuracy=0.75), "75 %"), (validated(loss=0.4), "0.4000"), (validated(loss=None), "unknown")],
)
def test_without_an_evaluation_the_last_validation_of_any_task_counts(tmp_path, fake, validation, answer):
    training = fake.summary() | {"validation": validation}
    record = fake.run(tmp_path, fake.recipe(), without=("evaluate",), replace={"train": training})
    (tile,) = (tile for tile in tiles(record) if tile.question == "What is it worth?")
    assert tile.answer == answer


def test_what_was_not_measured_says_which_command_measures_it(tmp_path, fake):
    (missing,) = quality(fake.run(tmp_path, fake.recipe(), without=("evaluate",))).blocks
    assert isinstance(missing, Missing) and missing.command == "trainwright evaluate RECIPE"


def test_a_classifier_stands_beside_words(classified):
    split = CLASSIFIED | {"baselines": [{"name": "TF-IDF, logistic regression", "macro_f1": 0.85}]}
    classified.evaluation["splits"] = {"test": split}
    charts = [block.views[0][1] for block in quality(classified).blocks if isinstance(block, Figure)]
    chart = next(chart for chart in charts if chart.title == "Macro F1, test split")
    assert [(label, bars[0].text) for label, bars in chart.groups] == [
        ("this model", "0.792"),
        ("TF-IDF, logistic regression", "0.850"),
    ]
    classified.evaluation["baselines_skipped"] = "no scikit-learn"
    assert quality(classified).lead.endswith("Not compared: no scikit-learn.")
