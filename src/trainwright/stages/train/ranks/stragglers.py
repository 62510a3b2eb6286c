"""Ranks that stay behind: how long each computes, compared at every report without making anybody wait."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import TrainingMetrics

SLOWER = 1.2
"""A rank that computes this many times as long as the median is behind."""
REPORTS = 3
PATIENCE_S = 10.0
"""It is named when it was behind in so many reports in a row, and for so long: one slow step is anybody's."""


class Patience:
    """Which rank is behind, and whether that lasts."""

    def __init__(self) -> None:
        self._behind = -1
        self._times, self._seconds = 0, 0.0
        self._named = False

    def lasting(self, rank: int, ratio: float, seconds: float) -> bool:
        """Returns whether the slowest rank has now been behind for long enough to be named; it is named once.

        Args:
            rank: the slowest one of the ``seconds`` that a report is about.
            ratio: how many times as long as the median it computes.
            seconds: since the report before.
        """
        if ratio < SLOWER or rank != self._behind:
            self._times, self._seconds, self._named = 0, 0.0, False
            self._behind = rank
        if ratio < SLOWER:
            return False
        self._times += 1
        self._seconds += seconds
        if self._named or self._times < REPORTS or self._seconds < PATIENCE_S:
            return False
        self._named = True
        return True


class Stragglers:
    """Exchanges busy seconds while steps compute, so that nobody waits for them; they are heard one report later.

    All ranks take equally long for a step, for they wait for the slowest. What tells it is the time in which a rank
    does not wait: that of a step without ``communicate``.
    """

    def __init__(self) -> None:
        self._hosts: list[str] = []
        self._since = -1
        self._patience = Patience()
        self._coming: tuple[int, float, list[torch.Tensor], dist.Work | None] | None = None

    def compare(self, step: int, times: PhaseTimes, metrics: TrainingMetrics) -> None:
        """Tells what was exchanged at the call before, and exchanges what is new; all ranks call it after one step."""
        if not self._hosts:
            hosts: list[str] = [""] * dist.get_world_size()
            dist.all_gather_object(hosts, platform.node())
            self._hosts = hosts
        self._tell(metrics)
        # The first report has no beginning that it could count its steps from, and holds what happens once.
        if self._since >= 0:
            busy_s = (times.of_steps.total_s - times.communicate) / max(1, step - self._since)
            mine = torch.tensor([busy_s], dtype=torch.float64)
            all_busy = [torch.zeros_like(mine) for _ in self._hosts]
            self._coming = step, times.total_s, all_busy, dist.all_gather(all_busy, mine, async_op=True)
        self._since = step

    def _tell(self, metrics: TrainingMetrics) -> None:
        if self._coming is None:
            return
        step, seconds, gathered = self._heard()
        rank, spread = slowest([float(each) for each in gathered])
        metrics.metric("train/rank_spread", spread - 1, step=step)
        metrics.metric("train/slowest_rank", rank, step=step)
        if self._patience.lasting(rank, spread, seconds):
            metrics.message(
                f"rank {rank} on {self._hosts[rank]} stays behind: by step {step} it computes {spread:.2f} times as "
                "long as the median rank, and all wait for it; look for other work on its host, or for a slow device"
            )

    def _heard(self) -> tuple[int, float, list[torch.Tensor]]:
        assert self._coming is not None
        step, seconds, gathered, work = self._coming
        self._coming = None
        if work is not None:
            work.wait()
        return step, seconds, gathered

    def close(self) -> None:
        """Waits for the exchange under way."""
        if self._coming is not None:
            self._heard()


def slowest(busy_s: Sequence[float]) -> tuple[int, float]:
    """Returns the rank that computes longest, and how many times as long as the median: of two, as the other one."""
    rank = max(range(len(busy_s)), key=busy_s.__getitem__)
    return rank, busy_s[rank] / statistics.median_low(busy_s)
