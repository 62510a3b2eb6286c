"""The server's numbers, in Prometheus' text format (exposition format 0.0.4)."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histograms' buckets."""


class Counter:
    """A number that only grows, one for each combination of labels."""

    kind = "counter"

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Adds ``amount``."""
        key = tuple(labels[name] for name in self._labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount

    def value(self, **labels: str) -> float:
        """Returns the sum of what was added."""
        return self._values.get(tuple(labels[name] for name in self._labels), 0.0)

    def samples(self) -> list[tuple[str, Mapping[str, str], float]]:
        """Suffix, labels and value of each line."""
        with self._lock:
            return [("", dict(zip(self._labels, key, strict=True)), value) for key, value in self._values.items()]


class Gauge:
    """A number that is read when it is asked for."""

    kind = "gauge"

    def __init__(self, read: Callable[[], float], **labels: str) -> None:
        self._read, self._labels = read, labels

    def samples(self) -> list[tuple[str, Mapping[str, str], float]]:
        """Suffix, labels and value of each line."""
        return [("", self._labels, self._read())]


class Histogram:
    """Counts of durations in seconds below each bound."""

    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = LATENCIES_S) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._lock = threading.Lock()
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one duration."""
        with self._lock:
            self._counts[bisect.bisect_left(self._bounds, value)] += 1
            self.sum += value

    @property
    def count(self) -> int:
        """Returns number of durations counted."""
        return sum(self._counts)

    def samples(self) -> list[tuple[str, Mapping[str, str], float]]:
        """Suffix, labels and value of each line; buckets are cumulative."""
        with self._lock:
            counts, total = list(self._counts), self.sum
        lines: list[tuple[str, Mapping[str, str], float]] = []
        running = 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            running += count
            lines.append(("_bucket", {"le": "+Inf" if bound == float("inf") else f"{bound:g}"}, running))
        return [*lines, ("_sum", {}, total), ("_count", {}, running)]


Metric = Counter | Gauge | Histogram


class ServerMetrics:
    """All numbers of the server; ``add`` takes further ones."""

    def __init__(self) -> None:
        self.requests = Counter(("route", "status"))
        self.prompt_tokens = Counter()
        self.completion_tokens = Counter()
        self.cancelled = Counter()
        self.time_to_first_token = Histogram()
        self.time_per_token = Histogram()
        self._all: dict[str, tuple[str, Metric]] = {
            "http_requests_total": ("HTTP requests answered", self.requests),
            "prompt_tokens_total": ("prompt tokens taken in", self.prompt_tokens),
            "completion_tokens_total": ("tokens generated", self.completion_tokens),
            "cancelled_total": ("answers given up because the client went away", self.cancelled),
            "time_to_first_token_seconds": ("from taking a request to its first token", self.time_to_first_token),
            "time_per_token_seconds": ("from one token of an answer to the next", self.time_per_token),
        }

    def add(self, name: str, text: str, metric: Metric) -> None:
        """Shows one more number."""
        self._all[name] = (text, metric)

    def render(self) -> str:
        """Returns all numbers as text."""
        lines = []
        for name, (text, metric) in self._all.items():
            full = f"trainwright_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {metric.kind}"]
            for suffix, labels, value in metric.samples():
                inside = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
                lines.append(f"{full}{suffix}{{{inside}}} {value:.10g}" if inside else f"{full}{suffix} {value:.10g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
