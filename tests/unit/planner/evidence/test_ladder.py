from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fixtures.ladders import LADDER, measured
from trainwright.core.records import from_json, to_json
from trainwright.planner.evidence.ladder import Comparison, Ladder, PredictedStep


def test_a_ladder_comes_back_from_its_file() -> None:
    assert from_json(Ladder, to_json(LADDER), where="file") == LADDER


def test_the_whole_gain_is_the_product_of_what_was_kept() -> None:
    assert LADDER.gain.mid == pytest.approx(2.0 * 1.25)
    assert LADDER.predicted_gain == pytest.approx(1.8 * 1.5)
    # Two errors of a tenth each, independent of each other.
    assert LADDER.gain.high == pytest.approx(2.5 * math.exp(math.hypot(math.log(1.1), math.log(1.1))))
    assert LADDER.gain.low == pytest.approx(2.5 * math.exp(-math.hypot(math.log(0.9), math.log(0.9))))


def test_without_anything_kept_nothing_is_gained() -> None:
    nothing = replace(LADDER, rungs=LADDER.rungs[1:3])
    assert (nothing.gain.low, nothing.gain.mid, nothing.gain.high, nothing.predicted_gain) == (1, 1, 1, 1)
    assert replace(LADDER, rungs=LADDER.rungs[2:3]).first is None


def test_drift_is_what_the_same_configuration_changed_by() -> None:
    assert [rung.drift for rung in LADDER.rungs] == pytest.approx([0.0, math.log(1.2), 0.0, 0.0])


def test_what_is_taken_is_what_the_last_comparison_chose() -> None:
    given = Comparison(chosen="given", reason="", before=measured(300.0), tuned=measured(150.0))
    assert replace(LADDER, given=given).final == given.before
    assert replace(LADDER, given=given).over_naive == pytest.approx(1.5), "of 200"
    assert replace(LADDER, given=replace(given, chosen="tuned")).over_naive == pytest.approx(0.75)
    assert LADDER.final is LADDER.over_naive is None
    assert replace(LADDER, tuned={}).stays and not LADDER.stays
    one, other = (PredictedStep(tokens_per_s=rate, memory_bytes=1.0) for rate in (4.0, 5.0))
    assert replace(given, predicted_before=one, predicted=other).predicted_gain == 1.25
    assert given.predicted_gain is None
