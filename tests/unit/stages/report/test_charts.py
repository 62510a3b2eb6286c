from __future__ import annotations

import json
import math
from xml.etree import ElementTree as ET

import pytest

from trainwright.stages.report.blocks import FULL_PX, HALF_PX, NARROW_PX
from trainwright.stages.report.charts import Bar, Bars, Lines, Segment, Series, describe, draw


def lines(xs, ys, **changes):
    series = [
        Series(name="training", xs=xs, ys=ys, tone=0),
        Series(name="held <out>", xs=xs, ys=ys, tone=1, form="dots"),
    ]
    return Lines(title="Loss", x_title="tokens", y_title="nats", series=series, **changes)


BARS = Bars(
    title="Memory & more",
    x_title="bytes",
    groups=[
        ("weights", [Bar(segments=[Segment(name="p", value=100, tone=0, ghost=True)], text="100")]),
        (
            "total",
            [Bar(segments=[Segment(name="a", value=150, tone=0), Segment(name="b", value=50, tone=1)], text="200")],
        ),
    ],
)


@pytest.mark.parametrize("width", [FULL_PX, HALF_PX, NARROW_PX])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("xs", "ys"),
    [
        ([1, 2, 3], [3.0, 2.0, 1.0]),
        ([5], [2.0]),
        ([], []),
        ([1, 2, 3, 4], [3.0, math.nan, 1.0, 0.5]),
        ([0, 1, 2], [math.inf, -1.0, 0.0]),
        ([1, 2], [math.nan, math.nan]),
        ([1, 1], [2.0, 2.0]),
    ],
)
def test_any_curve_is_drawn_inside_the_picture(xs, ys, log, width):
    root = ET.fromstring(draw(lines(xs, ys, log=log, log_x=log), width))
    height = float(root.get("height"))
    assert "nan" not in draw(lines(xs, ys, log=log, log_x=log), width).replace("nats", "")
    for circle in root.iter("circle"):
        assert 0 <= float(circle.get("cx")) <= width
        assert 0 <= float(circle.get("cy")) <= height
    for text in root.iter("text"):
        assert 0 <= float(text.get("y")) <= height


def test_a_gap_breaks_the_line():
    root = ET.fromstring(draw(lines([1, 2, 3, 4, 5], [3.0, 2.5, math.nan, 2.0, 1.5]), HALF_PX))
    training = [path for path in root.iter("path") if "stroke t0" in (path.get("class") or "")]
    assert len(training) == 2


def test_one_point_is_a_dot():
    root = ET.fromstring(draw(lines([7], [2.0]), HALF_PX))
    assert len(list(root.iter("circle"))) == 2


def test_the_pointer_is_told_every_value():
    root = ET.fromstring(draw(lines([1, 2, 3], [3.0, math.nan, 1.0]), HALF_PX))
    rows = json.loads(root.get("data-hover"))
    assert [(row[1], row[2]) for row in rows] == [
        ("1", [["training", "3"], ["held <out>", "3"]]),
        ("3", [["training", "1"], ["held <out>", "1"]]),
    ]


def test_axes_are_titled_and_the_legend_names_each_line():
    texts = [text.text for text in ET.fromstring(draw(lines([1, 2], [3.0, 1.0]), HALF_PX)).iter("text")]
    assert {"tokens", "nats", "training", "held <out>"} <= set(texts)


def test_lines_say_what_they_show_to_who_cannot_see():
    words = describe(lines([1, 2000], [3.0, 1.25]))
    assert words.startswith("Loss, nats over tokens: training from 3 at 1 to 1.25 at 2k")
    assert describe(lines([], [])) == "Loss, nats over tokens: no points."


@pytest.mark.parametrize("width", [FULL_PX, HALF_PX, NARROW_PX])
def test_bars_are_as_long_as_their_values(width):
    root = ET.fromstring(draw(BARS, width))
    first, *stacked = [float(rect.get("width")) for rect in root.iter("rect")]
    assert sum(stacked) == pytest.approx(2 * first, abs=0.3)
    assert stacked[0] == pytest.approx(3 * stacked[1], abs=0.5)
    ends = [float(rect.get("x")) + float(rect.get("width")) for rect in root.iter("rect")]
    assert max(ends) <= width


def test_bars_say_what_they_show_to_who_cannot_see():
    assert describe(BARS) == "Memory & more: weights 100; total 200."
    assert ET.fromstring(draw(BARS, HALF_PX)).get("aria-label") == describe(BARS)


def test_bars_of_nothing():
    nothing = Bars(
        title="t", x_title="x", groups=[("a", [Bar(segments=[Segment(name="a", value=0, tone=0)], text="0")])]
    )
    for chart in (nothing, Bars(title="t", x_title="x", groups=[])):
        assert ET.fromstring(draw(chart, NARROW_PX)).tag == "svg"
