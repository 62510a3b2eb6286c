from __future__ import annotations

import math

import pytest

from trainwright.spec.event import Event
from trainwright.stages.report.series import Curve, curves, smooth, thin


def metric(step, value, *, name="train/loss", rank=0, kind="metric"):
    return Event(run="r", t_s=0.0, kind=kind, name=name, value=value, unit="nats/token", step=step, rank=rank)


def test_curves_ascend_and_a_step_reported_again_counts_once():
    events = [metric(10, 3.0), metric(20, 2.5), metric(30, 2.2), metric(20, 2.4), metric(30, 2.1), metric(40, 2.0)]
    curve = curves(events)["train/loss"]
    assert (curve.steps, curve.values, curve.unit) == ([10, 20, 30, 40], [3.0, 2.4, 2.1, 2.0], "nats/token")


def test_other_kinds_ranks_and_stepless_metrics_are_no_curve():
    assert curves([metric(1, 1.0, kind="phase"), metric(1, 1.0, rank=1), metric(None, 1.0)]) == {}


def test_last_is_the_last_finite_value():
    assert Curve(steps=[1, 2, 3], values=[3.0, 2.0, math.nan]).last == 2.0
    assert Curve().last is None


@pytest.mark.parametrize("size", [1, 2, 3, 10, 11, 500])
def test_thin_keeps_both_ends_and_the_mean(size):
    curve = Curve(steps=list(range(size)), values=[float(n) for n in range(size)])
    thinned = thin(curve, 10)
    assert len(thinned.steps) == min(size, 10)
    assert (thinned.steps[0], thinned.steps[-1]) == (0, size - 1)
    assert list(thinned.steps) == sorted(set(thinned.steps))
    assert thinned.values == pytest.approx(thinned.steps, abs=size / 16)


def test_thin_leaves_nan_out_of_means():
    curve = Curve(steps=list(range(100)), values=[math.nan if 40 <= n < 60 else 1.0 for n in range(100)])
    values = thin(curve, 12).values
    assert {value for value in values if not math.isnan(value)} == {1.0}


def test_smooth_keeps_a_line_and_calms_noise():
    line = Curve(steps=list(range(300)), values=[2.0 - n / 300 for n in range(300)])
    assert smooth(line).values == pytest.approx(line.values)
    noisy = Curve(steps=list(range(300)), values=[1.0 + (-1) ** n for n in range(300)])
    assert max(abs(value - 1.0) for value in smooth(noisy, share=0.1).values[20:-20]) < 0.1


def test_smooth_leaves_gaps_where_they_are():
    values = smooth(Curve(steps=list(range(50)), values=[math.inf if n == 25 else 3.0 for n in range(50)])).values
    assert math.isnan(values[25])
    assert values[:25] + values[26:] == pytest.approx([3.0] * 49)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_smooth_of_next_to_nothing(values):
    assert smooth(Curve(steps=list(range(len(values))), values=values)).values == values
