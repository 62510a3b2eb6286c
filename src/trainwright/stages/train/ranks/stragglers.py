"""How far ranks are apart: how long each computes, compared at every report without making anybody wait."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainwright.spec.measures import PhaseTimes
from trainwright.stages.train.metrics import TrainingMetrics


class Stragglers:
    """Exchanges busy seconds while steps compute, so that nobody waits for them; they are heard one report later.

    All ranks take equally long for a step, for they wait for the slowest. What tells it is the time in which a rank
    does not wait: that of a step without ``communicate``. ``Watch`` names who falls behind on one host; of several,
    whose clocks differ, and where a launcher starts ranks that nobody watches, this does.
    """

    def __init__(self) -> None:
        self._since = -1
        self._factor, self._hosts, self._told = math.inf, tuple[str, ...](), set[int]()
        self._coming: tuple[int, list[torch.Tensor], dist.Work | None] | None = None

    def name_beyond(self, factor: float, hosts: Sequence[str]) -> None:
        """Names ranks, once each, that compute for so many times the median rank's time from now on.

        Args:
            factor: how many times makes a straggler.
            hosts: each rank's.
        """
        self._factor, self._hosts = factor, tuple(hosts)

    def compare(self, step: int, times: PhaseTimes, metrics: TrainingMetrics) -> None:
        """Tells what was exchanged at the call before, and exchanges what is new; all ranks call it after one step."""
        self._tell(metrics)
        # The first report has no beginning that it could count its steps from, and holds what happens once.
        if self._since >= 0:
            busy_s = (times.of_steps.total_s - times.communicate) / max(1, step - self._since)
            mine = torch.tensor([busy_s], dtype=torch.float64)
            all_busy = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
            self._coming = step, all_busy, dist.all_gather(all_busy, mine, async_op=True)
        self._since = step

    def _tell(self, metrics: TrainingMetrics) -> None:
        if self._coming is None:
            return
        step, gathered = self._heard()
        rank, spread = slowest([float(each) for each in gathered])
        metrics.metric("train/rank_spread", spread - 1, step=step)
        metrics.metric("train/slowest_rank", rank, step=step)
        if spread > self._factor and rank not in self._told:
            self._told.add(rank)
            metrics.message(
                f"rank {rank} on {self._hosts[rank]} falls behind: "
                f"it computes {spread:.1f} times as long as the median rank"
            )

    def _heard(self) -> tuple[int, list[torch.Tensor]]:
        assert self._coming is not None
        step, gathered, work = self._coming
        self._coming = None
        if work is not None:
            work.wait()
        return step, gathered

    def close(self) -> None:
        """Waits for the exchange under way."""
        if self._coming is not None:
            self._heard()


def slowest(busy_s: Sequence[float]) -> tuple[int, float]:
    """Returns the rank that computes longest, and how many times as long as the median: of two, as the other one."""
    rank = max(range(len(busy_s)), key=busy_s.__getitem__)
    return rank, busy_s[rank] / statistics.median_low(busy_s)
