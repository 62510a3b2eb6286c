"""``Profile``: a few steps of a training, looked at closely on every rank; ``profile.json``."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.core.frozen import dataclass
from trainwright.spec.measures import PhaseTimes

FILE = "profile.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A stretch of one phase, in seconds since its rank's profile began."""

    phase: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """Calls of one of torch's operators, and the seconds that they took without those that they called."""

    name: str
    calls: int
    self_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankProfile:
    """What one rank did.

    Attributes:
        rank: its number.
        host: where it ran.
        began_unix_s: when its profile began; ranks of one host can be laid beside each other by it.
        steps: of each profiled step its stretches, in order; they have no gap.
        operators: those that took longest, of all steps, the longest first.
        files: what was written of this rank, by what it is.
    """

    rank: int
    host: str
    began_unix_s: float
    steps: tuple[tuple[Stretch, ...], ...]
    operators: tuple[Operator, ...]
    files: Mapping[str, str]

    @property
    def phases(self) -> PhaseTimes:
        """Returns mean seconds of a step by phase."""
        total = dict.fromkeys(PhaseTimes.names(), 0.0)
        for step in self.steps:
            for stretch in step:
                total[stretch.phase] += stretch.end_s - stretch.begin_s
        return PhaseTimes(**total).scaled(1 / len(self.steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Updates ``first`` to ``last`` of a training, as every rank saw them."""

    format: int = FORMAT
    recipe: str
    device: str
    first: int
    last: int
    ranks: tuple[RankProfile, ...]
