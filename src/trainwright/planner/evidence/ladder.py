"""``Ladder``: what each technique brought to a training on one machine, measured and predicted; ``ladder.json``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from trainwright.core.frozen import dataclass
from trainwright.spec.measures import PhaseTimes
from trainwright.spec.plan import Interval
from trainwright.spec.sections.optimize import TechniqueName

FILE = "ladder.json"
TUNED_FILE = "tuned.yaml"
FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A few updates of one configuration in a process of its own.

    Attributes:
        step_s: seconds of each timed update.
        losses: mean loss of each, in nats.
        step_tokens: tokens of one update.
        memory_bytes: the process's peak on a CPU, what torch reserved on a device.
        start_s: seconds that the updates before them took beyond their usual time: compilation, above all.
        phases: mean seconds of an update by phase.
    """

    step_s: tuple[float, ...]
    losses: tuple[float, ...]
    step_tokens: int
    memory_bytes: float
    start_s: float
    phases: PhaseTimes

    @property
    def median_s(self) -> float:
        """Returns the seconds of an update."""
        return statistics.median(self.step_s)

    @property
    def tokens_per_s(self) -> float:
        """Returns the throughput."""
        return self.step_tokens / self.median_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedStep:
    """What a plan says of a configuration."""

    tokens_per_s: float
    memory_bytes: float


def _ratio(one: PredictedStep | None, other: PredictedStep | None) -> float | None:
    return None if one is None or other is None else one.tokens_per_s / other.tokens_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One technique: tried or not, kept or not, and why.

    Attributes:
        technique: its name.
        why: what it changes, and how that helps.
        changes: keys of the recipe with the values that it gives them; empty where there was nothing to try.
        tolerance: relative difference of the loss that it may cause.
        kept: whether the next techniques, and the tuned recipe, have it.
        reason: why it is kept or not.
        before: the configuration so far.
        with_it: the same with the technique.
        after: the configuration so far, again.
        gain: throughput with it over without, with its interval; None where it was not measured.
        loss_difference: the largest relative difference of an update's loss.
        predicted_before: by the plan of the configuration so far.
        predicted: by the plan of the one with the technique.
    """

    technique: TechniqueName
    why: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float
    kept: bool
    reason: str
    before: Measurement | None = None
    with_it: Measurement | None = None
    after: Measurement | None = None
    gain: Interval | None = None
    loss_difference: float | None = None
    predicted_before: PredictedStep | None = None
    predicted: PredictedStep | None = None

    @property
    def predicted_gain(self) -> float | None:
        """Returns the planner's ratio of both throughputs."""
        return _ratio(self.predicted, self.predicted_before)

    @property
    def decided(self) -> bool:
        """Returns whether the measurements say that it is to be had, or is not: noise and what was not tried do not."""
        if self.kept or self.gain is None:
            return self.kept
        broken = self.loss_difference is not None and self.loss_difference > self.tolerance
        return broken or not self.gain.low <= 1 <= self.gain.high

    @property
    def drift(self) -> float:
        """Returns by how much the machine's speed changed between the two measurements without it, relatively."""
        if self.before is None or self.after is None:
            return 0.0
        return abs(math.log(self.after.median_s / self.before.median_s))


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The tuned recipe beside the recipe as it was given.

    Attributes:
        chosen: whose values the tuned recipe has.
        reason: why.
        before: the recipe as given.
        tuned: with what the ladder decided.
        after: the recipe as given, again.
        gain: throughput with what the ladder decided over that as given; None where one was not measured.
        predicted_before: by the plan of the recipe as given.
        predicted: by the plan with what the ladder decided.
        loss_difference: the largest relative difference of an update's loss between the two.
        tolerance: what rounding may cause of it: the sum of what each technique that was decided may.
    """

    chosen: Literal["tuned", "given"]
    reason: str
    before: Measurement | None = None
    tuned: Measurement | None = None
    after: Measurement | None = None
    gain: Interval | None = None
    predicted_before: PredictedStep | None = None
    predicted: PredictedStep | None = None
    loss_difference: float | None = None
    tolerance: float | None = None

    @property
    def taken(self) -> Measurement | None:
        """Returns the measurement of the recipe that is taken; None where it was not measured."""
        return self.tuned if self.chosen == "tuned" else self.before

    @property
    def predicted_gain(self) -> float | None:
        """Returns the planner's ratio of both throughputs."""
        return _ratio(self.predicted, self.predicted_before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """All techniques in the order in which they were tried.

    Attributes:
        format: of the file.
        recipe: its name.
        device: that was measured.
        steps: timed updates of a measurement.
        warmup_steps: updates before them.
        start: keys of the recipe that make the naive configuration.
        tuned: keys that the tuned recipe has in place of the given one's: what was decided, and nothing else.
        rungs: the techniques.
        given: the tuned recipe beside the given one; None where they are the same.
    """

    format: int = FORMAT
    recipe: str
    device: str
    steps: int
    warmup_steps: int
    start: Mapping[str, Any]
    tuned: Mapping[str, Any]
    rungs: tuple[Rung, ...]
    given: Comparison | None = None

    @property
    def kept(self) -> tuple[Rung, ...]:
        """Returns the techniques that are faster than the configuration before them."""
        return tuple(rung for rung in self.rungs if rung.kept)

    @property
    def first(self) -> Measurement | None:
        """Returns the naive configuration's measurement; None where nothing was measured."""
        return next((rung.before for rung in self.rungs if rung.before is not None), None)

    @property
    def stays(self) -> bool:
        """Returns whether the recipe stays as it was given: nothing was decided, or it is no better together."""
        return not self.tuned

    @property
    def final(self) -> Measurement | None:
        """Returns the recipe that is taken as it was measured last; None where it was not measured as a whole."""
        return None if self.given is None else self.given.taken

    @property
    def over_naive(self) -> float | None:
        """Returns how many times the naive throughput that is; measurements of different minutes have no interval."""
        if self.final is None or self.first is None:
            return None
        return self.final.tokens_per_s / self.first.tokens_per_s

    @property
    def gain(self) -> Interval:
        """Returns the product of what the kept techniques brought; their errors add up in squares."""
        gains = [rung.gain for rung in self.kept if rung.gain is not None]
        mid = math.prod(gain.mid for gain in gains)
        below, above = (
            math.hypot(*(math.log(getattr(gain, end) / gain.mid) for gain in gains)) for end in ("low", "high")
        )
        return Interval(low=mid * math.exp(-below), mid=mid, high=mid * math.exp(above))

    @property
    def predicted_gain(self) -> float:
        """Returns the product of what the planner predicts of the kept techniques."""
        return math.prod(rung.predicted_gain or 1.0 for rung in self.kept)
