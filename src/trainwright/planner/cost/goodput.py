"""From seconds of steps to seconds of a run: failures, checkpoints, evaluation, spot nodes.

Interruptions are a Poisson process: ``n`` devices with a mean time between failures ``M`` each stop a synchronous run
every ``M / n``. All quantities may be arrays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainwright.core.frozen import dataclass
from trainwright.planner.counts.layouts import Numbers, Values

HOUR_S = 3600.0
DEVICE_MTBF_S = 54 * 24 * 16_384 / 419 * HOUR_S
"""50,700 hours: 419 unexpected interruptions in 54 days on 16,384 H100 (Llama Team, 2024, arXiv 2407.21783, section
3.3.4). Others: 29,500 and 82,100 on Meta's two research clusters of A100 (6.50 and 2.34 failures per 1,000 days of a
node of 8: Kokolis et al., 2024, arXiv 2410.21680); 13,600 for OPT-175B (35 manual and 70 automatic restarts in two
months on 992 A100: Zhang et al., 2022, arXiv 2205.01068, section 2.5)."""
START_DOUBLING_S = 60.0
"""What each doubling of the nodes adds to the start: all wait for the last one to load its image, install and join.
Jobs of more than 100 GPUs start in six to seven minutes at ByteDance (Li et al., 2025, arXiv 2507.12619, recall), and
the latest of many nodes comes later by the logarithm of their number."""
RECOVERY_S = 600.0
"""From an interruption to the next step. Llama 3's interruptions and its "higher than 90 %" of effective training time
leave at most 1,100 seconds for each; some 600 of them remain beside work done again and checkpoints of 10 seconds."""
SPOT_RECOVERY_S = 1800.0
"""A default without a measurement: the same, and twenty minutes to get another node."""
SPOT_NODE_MTBF_S: Mapping[str, float] = {
    "aws": -720 / np.log(1 - 0.15) * HOUR_S,
    "azure": -1 / np.log(1 - 0.025) * HOUR_S,
    "gcp": 24 * HOUR_S,
}
"""Mean time until a spot node is taken back. AWS: 10 to 20 % a month for p5 (Spot Instance Advisor, May 2025); Azure
quotes bands for an hour, of which 0 to 5 % is the lowest; GCP: preemptible nodes live 24 hours at most (Kadupitiya et
al., 2020, arXiv 1911.05160). Middles of bands; zones and weeks differ by a factor of ten."""
SPOT_OTHER_MTBF_S = 24 * HOUR_S
"""A default without a measurement, for providers that publish none."""
SPOT_NOTICE_S: Mapping[str, float] = {"aws": 120.0, "azure": 30.0, "gcp": 30.0}
"""Warning before a spot node is taken, from the providers' documentation; none for others."""
LEAST_INTERVAL_S = 60.0
"""Between two checkpoints, however fast one is written: names, fsync and the file system's own work are not counted."""
_ENDLESS = 300.0
"""Expected failures in one segment beyond which its exp(300) retries are called endless."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Goodput:
    """Expected seconds of a run by what they are spent on; they sum to ``total_s``.

    ``lost_s`` is work since the last checkpoint that is done again, ``overhead_s`` what published runs spend beyond all
    that is modelled (planned stops, rewinds, slow nodes).
    """

    steps_s: Numbers
    evaluation_s: Numbers
    checkpoints_s: Numbers
    lost_s: Numbers
    recovery_s: Numbers
    start_s: Numbers
    overhead_s: Numbers
    interruptions: Numbers
    checkpoint_interval_s: Numbers

    @property
    def checkpoints(self) -> Numbers:
        """Returns how many checkpoints are written, the one at the end included."""
        return (self.steps_s + self.evaluation_s) / self.checkpoint_interval_s

    @property
    def total_s(self) -> Numbers:
        """Returns the expected wall-clock seconds."""
        work_s = self.steps_s + self.evaluation_s + self.checkpoints_s
        return work_s + self.lost_s + self.recovery_s + self.start_s + self.overhead_s


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Spot:
    """A run on nodes that may be taken back: expected interruptions, what coming back from them takes, and its time."""

    interruptions: Numbers
    checkpoint_interval_s: Numbers
    recovery_s: Numbers
    total_s: Numbers


def started_s(one_node_s: Values, nodes: Values) -> Numbers:
    """Returns the seconds from the command to the first step on so many nodes; a part of a node starts as one does."""
    return one_node_s + START_DOUBLING_S * np.log2(np.maximum(nodes, 1.0))


def young_interval_s(checkpoint_s: Values, mtbf_s: Values) -> Numbers:
    """Returns the work between checkpoints by Young (1974): ``sqrt(2 c M)``, for short checkpoints."""
    return np.sqrt(2.0 * np.asarray(checkpoint_s, dtype=np.float64) * mtbf_s)


def daly_interval_s(checkpoint_s: Values, mtbf_s: Values) -> Numbers:
    """Returns the work between checkpoints by Daly (2006, equation 37); at most ``M``."""
    half = np.asarray(checkpoint_s, dtype=np.float64) / (2.0 * np.asarray(mtbf_s))
    better = young_interval_s(checkpoint_s, mtbf_s) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - checkpoint_s
    return np.where(half < 1.0, better, mtbf_s)


def _best_interval_s(checkpoint_s: Values, mtbf_s: Values) -> Numbers:
    """Returns Daly's interval, but no less than people keep apart."""
    return np.maximum(LEAST_INTERVAL_S, daly_interval_s(checkpoint_s, mtbf_s))


def expected_s(
    work_s: Values, *, checkpoint_s: Values, interval_s: Values, recovery_s: Values, mtbf_s: Values
) -> Numbers:
    """Returns the wall-clock seconds for ``work_s`` of work under Poisson failures (Daly, 2006, equation 20).

    Each ``interval_s`` of work and its checkpoint must pass without a failure; recovery can fail too. Infinite where
    the run would practically never end.
    """
    rate = 1.0 / np.asarray(mtbf_s, dtype=np.float64)
    segment = np.asarray(interval_s + checkpoint_s, dtype=np.float64)
    never = rate * (segment + recovery_s) > _ENDLESS
    retries = np.expm1(np.minimum(rate * segment, _ENDLESS)) / np.where(rate > 0, rate, 1.0)
    stretched = np.where(rate > 0, retries * np.exp(np.minimum(rate * recovery_s, _ENDLESS)), segment)
    stretched = np.where(never, np.inf, stretched)
    return np.asarray(work_s / interval_s * stretched)


def goodput(
    steps_s: Values,
    *,
    devices: Values,
    checkpoint_s: Values,
    checkpoint_interval_s: Values | None = None,
    evaluation_s: Values = 0.0,
    device_mtbf_s: Values = DEVICE_MTBF_S,
    recovery_s: Values = RECOVERY_S,
    start_s: Values = 0.0,
    run_overhead: Values = 0.0,
) -> Goodput:
    """Returns the expected seconds of a run whose steps alone take ``steps_s``.

    ``checkpoint_s`` is what one checkpoint holds training up; ``checkpoint_interval_s`` is the work between two, by
    default Daly's, a minute at least. Slow devices are in step times that were measured or fitted at scale.
    ``run_overhead`` is a share of all the rest.
    """
    steps = np.asarray(steps_s, dtype=np.float64)
    work = steps + evaluation_s
    mtbf = np.asarray(device_mtbf_s, dtype=np.float64) / devices
    if checkpoint_interval_s is None:
        checkpoint_interval_s = _best_interval_s(checkpoint_s, mtbf)
    interval = np.clip(checkpoint_interval_s, np.minimum(1.0, work), work)
    total = expected_s(work, checkpoint_s=checkpoint_s, interval_s=interval, recovery_s=recovery_s, mtbf_s=mtbf)
    written = work / interval * checkpoint_s
    # A recovery that fails is begun anew: the mean of min(recovery, time to the next failure) is M (1 - exp(-R / M)).
    ends = np.isfinite(total)
    finite = np.where(ends, total, 0.0)
    recovering = finite * -np.expm1(-recovery_s / mtbf)
    lost = np.where(ends, np.maximum(finite - work - written - recovering, 0.0), np.inf)
    zero = np.zeros_like(total)
    return Goodput(
        steps_s=steps + zero,
        evaluation_s=evaluation_s + zero,
        checkpoints_s=written + zero,
        lost_s=lost,
        recovery_s=recovering,
        start_s=start_s + zero,
        overhead_s=run_overhead * (finite + start_s),
        interruptions=total / mtbf,
        checkpoint_interval_s=interval + zero,
    )


def spot(
    work_s: Values,
    *,
    nodes: Values,
    devices: Values,
    provider: str,
    checkpoint_s: Values,
    node_mtbf_s: Values | None = None,
    notice_s: Values | None = None,
    device_mtbf_s: Values = DEVICE_MTBF_S,
    recovery_s: Values = SPOT_RECOVERY_S,
) -> Spot:
    """Returns a run on spot nodes, checkpointed at Daly's interval for interruptions and failures together.

    Losing one node stops all. Where a checkpoint fits into the provider's notice, an interruption costs that checkpoint
    and the recovery, but no work.
    """
    if node_mtbf_s is None:
        node_mtbf_s = SPOT_NODE_MTBF_S.get(provider, SPOT_OTHER_MTBF_S)
    if notice_s is None:
        notice_s = SPOT_NOTICE_S.get(provider, 0.0)
    work = np.asarray(work_s, dtype=np.float64)
    taken, failed = nodes / np.asarray(node_mtbf_s), devices / np.asarray(device_mtbf_s)
    warned = np.asarray(checkpoint_s) <= notice_s
    unwarned = 1.0 / np.where(warned, failed, failed + taken)
    interval = np.minimum(_best_interval_s(checkpoint_s, unwarned), work)
    total = expected_s(work, checkpoint_s=checkpoint_s, interval_s=interval, recovery_s=recovery_s, mtbf_s=unwarned)
    # While a warned interruption is recovered from, others may come: 1 + q + q^2 + ... of them.
    pause = np.where(warned, taken * (checkpoint_s + np.asarray(recovery_s)), 0.0)
    total = np.where(pause < 1.0, total / np.where(pause < 1.0, 1.0 - pause, 1.0), np.inf)
    finite = np.where(np.isfinite(total), total, 0.0)
    paused = finite * np.where(pause < 1.0, pause, 0.0)
    # As in ``goodput``: a recovery that fails is begun anew; a warned interruption pauses for its whole one.
    back = np.minimum((finite - paused) * -np.expm1(-np.asarray(recovery_s) / unwarned) + paused, finite - work)
    return Spot(interruptions=total * (taken + failed), checkpoint_interval_s=interval, recovery_s=back, total_s=total)
