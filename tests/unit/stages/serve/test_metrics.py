from __future__ import annotations

import re

from trainwright.stages.serve.metrics import Counter, Gauge, Histogram, ServerMetrics

LINE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_]\w*="(\\.|[^"\\\n])*"(,[a-zA-Z_]\w*="(\\.|[^"\\\n])*")*\})? [0-9.e+-]+(inf)?'
)
"""A sample in the text format, as its specification has it."""


def test_counters_keep_labels_apart():
    counter = Counter(("route", "status"))
    counter.add(route="/a", status="200")
    counter.add(2, route="/a", status="200")
    counter.add(route="/a", status="404")
    assert counter.value(route="/a", status="200") == 3
    assert counter.value(route="/b", status="200") == 0
    assert len(counter.samples()) == 2


def test_histogram_buckets_are_cumulative():
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    buckets = {labels["le"]: value for suffix, labels, value in histogram.samples() if suffix == "_bucket"}
    assert buckets == {"0.1": 2, "1": 3, "+Inf": 4}
    assert histogram.count == 4
    assert histogram.sum == 7.65


def test_every_line_is_in_the_format():
    metrics = ServerMetrics()
    metrics.add("odd", "a label with everything", Gauge(lambda: 1e-7, label='quo"te\\back\nline'))
    metrics.requests.add(route="/v1/models", status="200")
    metrics.time_per_token.observe(0.004)
    text = metrics.render()
    assert text.endswith("\n")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in samples if not LINE.fullmatch(line)]
    typed = re.findall(r"# TYPE (\S+) (counter|gauge|histogram)", text)
    assert len(typed) == len(re.findall("# HELP ", text)) == len({name for name, _ in typed})
    assert r'label="quo\"te\\back\nline"' in text
