from __future__ import annotations

from fixtures.page import WrittenPage
from trainwright.render.results.evaluation import baseline_rows, show


def split(bits, **baselines):
    entries = [{"name": name, "bits_per_byte": value} for name, value in baselines.items()]
    return {
        "loss": 2.5,
        "perplexity": 12.2,
        "bits_per_byte": bits,
        "tokens": 4000,
        "documents": 9,
        "metrics": {"loss": "nats/token", "bits_per_byte": "bits/byte"},
        "unit": "token",
        "count": 4000,
        "baselines": entries,
    }


def test_baselines_are_ranked_with_the_model_among_them():
    rows = baseline_rows({"validation": split(1.7, gzip=1.8, ngram=1.6), "test": split(1.75, gzip=1.85)})
    assert rows == [("ngram", "1.6000", ""), ("this model", "1.7000", "1.7500"), ("gzip", "1.8000", "1.8500")]


def test_shows_splits_and_completions():
    page = WrittenPage()
    completion = {"prompt": "def f(", "text": "x):", "overlap": {"size_bytes": 2}}
    show(
        {"task": "next-token", "splits": {"test": split(1.7) | {"perplexity": None}}, "completions": [completion]}, page
    )
    assert page.tables["split"] == [("test", "2.5000", "unknown", "1.7000", "4,000", "9")]
    assert page.headings == ["def f("] and page.lines[-1] == "x):"
    assert page.notes == ["word for word in the training text: at most 2 bytes in a row"]


def test_another_task_shows_its_metrics():
    page = WrittenPage()
    split = {"metrics": {"loss": "nats/image", "edges": ""}, "loss": 0.4, "edges": 0.79, "unit": "image", "count": 1200}
    show({"task": "my_package:TASK", "splits": {"test": split}, "completions": []}, page)
    assert page.tables == {"split": [("test", "0.4000", "0.7900", "1,200 images")]}


def test_a_plug_in_that_measures_bits_per_byte_stands_beside_the_baselines():
    page = WrittenPage()
    bare = {name: value for name, value in split(1.7, gzip=1.8).items() if name not in ("perplexity", "documents")}
    show({"task": "my_package:TASK", "splits": {"test": bare}, "completions": []}, page)
    assert page.tables["split"] == [("test", "2.5000", "1.7000", "4,000 tokens")]
    assert page.tables["bits/byte"] == [("this model", "1.7000"), ("gzip", "1.8000")]


def test_shows_what_a_classifier_takes_for_what():
    page = WrittenPage()
    by_label = [{"label": "ham", "f1": 0.75}, {"label": "spam", "f1": 0.5}, {"label": "rare", "f1": None}]
    record = {"metrics": {"loss": "nats/document", "macro_f1": ""}, "loss": 0.5, "macro_f1": 0.625, "count": 1200}
    record |= {"unit": "document", "by_label": by_label, "confusion": [[600, 200, 0], [100, 300, 0], [0, 0, 0]]}
    show({"task": "classify", "splits": {"test": record}, "completions": []}, page)
    assert page.tables["split"] == [("test", "0.5000", "0.6250", "1,200 documents")]
    assert page.headings == ["test: true label, and what it was taken for"]
    assert page.tables[""] == [
        ("ham", "600", "200", "0", "0.7500"),
        ("spam", "100", "300", "0", "0.5000"),
        ("rare", "0", "0", "0", "unknown"),
    ]
