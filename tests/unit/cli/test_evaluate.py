from __future__ import annotations

import io

from trainwright.cli.evaluate import baseline_rows, show
from trainwright.cli.output import Output


def split(bits, **baselines):
    entries = [{"name": name, "bits_per_byte": value} for name, value in baselines.items()]
    return {
        "loss": 2.5,
        "perplexity": 12.2,
        "bits_per_byte": bits,
        "tokens": 4000,
        "documents": 9,
        "baselines": entries,
    }


def test_baselines_are_ranked_with_the_model_among_them():
    rows = baseline_rows({"validation": split(1.7, gzip=1.8, ngram=1.6), "test": split(1.75, gzip=1.85)})
    assert rows == [("ngram", "1.6000", ""), ("this model", "1.7000", "1.7500"), ("gzip", "1.8000", "1.8500")]


def test_shows_splits_and_completions():
    stdout, stderr = io.StringIO(), io.StringIO()
    completion = {"prompt": "def f(", "text": "x):", "overlap": {"size_bytes": 2}}
    evaluation = {"splits": {"test": split(1.7) | {"perplexity": None}}, "completions": [completion]}
    show(evaluation, Output(command="evaluate", stdout=stdout, stderr=stderr))
    assert "2.5000" in stdout.getvalue()
    assert "unknown" in stdout.getvalue()
    assert "def f(\nx):" in stdout.getvalue()
    assert "at most 2 bytes" in stderr.getvalue()
