from __future__ import annotations

import pytest

from fixtures.page import WrittenPage
from trainwright.render.results.evaluation import baseline_rows, curve_points, is_curve, is_square, show


def split(bits, **baselines):
    return {
        "metrics": {
            "loss": {"value": 2.5, "unit": "nats/token"},
            "bits_per_byte": {"value": bits, "unit": "bits/byte"},
        },
        "unit": "token",
        "count": 4000,
        "record": {"documents": 9},
        "details": {},
        "baselines": [{"name": name, "bits_per_byte": value} for name, value in baselines.items()],
    }


def test_baselines_are_ranked_with_the_model_among_them():
    rows = baseline_rows({"validation": split(1.7, gzip=1.8, ngram=1.6), "test": split(1.75, gzip=1.85)})
    assert rows == [("ngram", "1.6000", ""), ("this model", "1.7000", "1.7500"), ("gzip", "1.8000", "1.8500")]


def test_shows_splits_and_completions():
    page = WrittenPage()
    completion = {"prompt": "def f(", "text": "x):", "overlap": {"size_bytes": 2}}
    splits = {"test": split(1.7, gzip=1.8)}
    show({"splits": splits, "completions": [completion]}, page)
    assert page.tables["split"] == [("test", "2.5000", "1.7000", "4,000 tokens", "9")]
    assert page.tables["bits/byte"] == [("this model", "1.7000"), ("gzip", "1.8000")]
    assert page.headings == ["def f("] and page.lines[-1] == "x):"
    assert page.notes == ["word for word in the training text: at most 2 bytes in a row"]


def test_shows_how_many_questions_were_answered_right():
    page = WrittenPage()
    metrics = {name: {"value": value, "unit": ""} for name, value in (("exact_match", 0.5), ("word_f1", 0.75))}
    furthest = [{"question": "1+1\n?", "said": "3", "right": "2", "word_f1": 0.0}]
    questions = {"count": 1200, "metrics": metrics, "furthest": furthest, "too_long": 1000}
    show({"splits": {"test": split(1.7)}, "completions": [], "questions": questions}, page)
    assert page.tables["1,200 questions"] == [("right to the letter", "0.5000"), ("F1 of words", "0.7500")]
    assert page.tables["furthest from right"] == [("1+1\\n?", "3", "2", "0.0000")]
    assert page.notes == ["1,000 leave no room for an answer in the context, and count as not answered"]


def test_a_task_shows_its_metrics_its_record_and_its_tables():
    page = WrittenPage()
    metrics = {"loss": {"value": 0.4, "unit": "nats/image"}, "seconds": {"value": -12345.0, "unit": ""}}
    details = {
        "by_edge": [{"edge": "upper", "pixels": 1234, "loss": None}, {"edge": "lower", "pixels": 5, "loss": 0.5}],
        "curve": {"title": "t", "x": "a", "x_title": "a", "y": "b", "y_title": "b", "rows": []},
        "other": 5,
    }
    measured = {"metrics": metrics, "unit": "image", "count": 1200, "record": {"crop": "none", "many": [1]}}
    only_loss = measured | {"metrics": {"loss": metrics["loss"]}, "details": {}}
    show({"splits": {"test": measured | {"details": details}, "train": only_loss}, "completions": []}, page)
    assert page.tables == {
        "split": [
            ("test", "0.4000", "-12,345", "1,200 images", "none"),
            ("train", "0.4000", "", "1,200 images", "none"),
        ],
        "test: by edge": [("upper", "1,234", ""), ("lower", "5", "0.5000")],
    }


def test_shows_what_a_classifier_takes_for_what():
    page = WrittenPage()
    details = {"confusion": {"labels": ["ham", "spam"], "counts": [[600, 200], [100, 300]]}}
    measured = {"metrics": {}, "count": 1200, "unit": "document", "record": {}, "details": details}
    show({"splits": {"test": measured}, "completions": []}, page)
    assert page.tables["test: confusion"] == [("ham", "600", "200"), ("spam", "100", "300")]


CURVE = {"title": "t", "x": "a", "x_title": "a", "y": "b", "y_title": "b"}


@pytest.mark.parametrize(
    ("table", "curve", "square"),
    [
        (CURVE | {"rows": [{"a": 1, "b": None}, {"a": 2}, {"a": 3, "b": 0.5}]}, [(3, 0.5)], False),
        (CURVE | {"rows": [1, 2]}, None, False),
        (CURVE | {"rows": None}, None, False),
        ({"labels": ["x", "y"], "counts": [[1, 2], [3, 4]]}, None, True),
        ({"labels": ["x", "y"], "counts": [[1], [3, 4]]}, None, False),
        ({"labels": ["x", "y"], "counts": [[1, 2]]}, None, False),
        ({"labels": ["x"], "counts": [[None]]}, None, False),
        ({"labels": 2, "counts": 3}, None, False),
    ],
)
def test_what_lacks_numbers_is_shown_without_them_or_not_at_all(table, curve, square):
    assert is_square(table) == square
    assert (curve_points(table) if is_curve(table) else None) == curve
    page = WrittenPage()
    measured = {"metrics": {}, "count": 1, "unit": "document", "record": {}, "details": {"table": table}}
    show({"splits": {"test": measured}, "completions": []}, page)
    assert ("test: table" in page.tables) == square


def test_a_classifier_is_shown_beside_words_or_why_it_is_not():
    metrics = {"loss": {"value": 0.4, "unit": ""}, "macro_f1": {"value": 0.81234, "unit": ""}}
    measured = {"metrics": metrics, "unit": "document", "count": 9, "record": {}, "details": {}}
    baselines = [{"name": "TF-IDF, logistic regression", "macro_f1": 0.85, "accuracy": 0.9}]
    page = WrittenPage()
    show({"splits": {"test": measured | {"baselines": baselines}}, "completions": [], "baselines_skipped": ""}, page)
    assert page.tables["macro F1"] == [("this model", "0.8123"), ("TF-IDF, logistic regression", "0.8500")]
    assert page.notes == []
    page = WrittenPage()
    show({"splits": {"test": measured}, "completions": [], "baselines_skipped": "no scikit-learn"}, page)
    assert "macro F1" not in page.tables and page.notes == ["no scikit-learn"]


def test_shows_what_benchmarks_measured():
    page = WrittenPage()
    metrics = {"acc": {"value": 0.25, "stderr": 0.0123}, "perplexity": {"value": 12.5}}
    benchmarks = {"harness": "lm-eval 1.2", "tasks": {"mine": {"count": 1500, "version": "1", "metrics": metrics}}}
    show({"splits": {"test": split(1.7)}, "completions": [], "benchmarks": benchmarks}, page)
    assert page.tables["benchmark"] == [
        ("mine", "acc", "0.2500", "0.0123", "1,500"),
        ("mine", "perplexity", "12.5000", "", "1,500"),
    ]
