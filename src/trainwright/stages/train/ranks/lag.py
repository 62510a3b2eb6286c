"""Which rank the others wait for: its own time between collectives, against theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from trainwright.runtime.faults.beat import Arrivals

LEAST = 40
"""Collectives that are compared at a time, or more."""
LEAST_NS = 2 * 10**9
"""In so much time, or more: of less the machine's other work decides."""
LEAST_SHARE = 0.1
"""Of the time that passed: a rank that costs less than that is no straggler, however its ratio is."""


class Lag:
    """Adds up what each rank needs for itself: from the last rank's coming to a collective to its own to the next."""

    def __init__(self, ranks: Sequence[int], factor: float) -> None:
        self._factor = factor
        self._own_ns = dict.fromkeys(ranks, 0)
        self._compared = 0
        self._passed_ns = 0
        self._last_ns: int | None = None

    def add(self, arrivals: Mapping[int, Arrivals]) -> dict[int, float]:
        """Takes what ranks say; returns each straggler with how many times the others' time it needs."""
        if arrivals.keys() != self._own_ns.keys() or len(arrivals) < 2:
            return {}
        common = set.intersection(*(set(each) for each in arrivals.values()))
        first = min(arrivals)
        for key in sorted(common, key=lambda each: arrivals[first][each]):
            came = {rank: times[key] for rank, times in arrivals.items()}
            if self._last_ns is None:
                self._last_ns = max(came.values())
            if max(came.values()) <= self._last_ns:
                continue
            for rank, when in came.items():
                self._own_ns[rank] += max(0, when - self._last_ns)
            self._passed_ns += max(came.values()) - self._last_ns
            self._last_ns = max(came.values())
            self._compared += 1
        return self._judge() if self._compared >= LEAST and self._passed_ns >= LEAST_NS else {}

    def _judge(self) -> dict[int, float]:
        own, found = self._own_ns, {}
        for rank, spent in own.items():
            usual = median(other for each, other in own.items() if each != rank)
            if spent > self._factor * usual and spent - usual > LEAST_SHARE * self._passed_ns:
                found[rank] = spent / max(usual, 1)
        self._own_ns = dict.fromkeys(own, 0)
        self._compared = self._passed_ns = 0
        return found
