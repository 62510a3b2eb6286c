from __future__ import annotations

import random
from itertools import combinations

import pytest

from fixtures.drawings import DRAWINGS, WAYS, texts_of
from trainwright.render import pictures
from trainwright.render.pictures import (
    ParetoPoint,
    ScatterPoint,
    charts,
)


def test_scaling_shows_efficiency_against_the_fewest_devices(tmp_path):
    texts = texts_of(DRAWINGS["scaling"], tmp_path)
    assert {"stops paying beyond 64", "ideal", "strong", "tokens/s", "efficiency (%)"} <= texts


def test_pareto_names_the_front_and_counts_the_others(tmp_path):
    texts = texts_of(DRAWINGS["pareto"], tmp_path)
    assert "24 h 00 min, $90k: 64x8xh100-sxm" in texts
    assert "6 days, $60k: 8x8xh100-sxm" in texts
    assert not any("a100" in text for text in texts)
    assert any(text.startswith("other ways, 1:") for text in texts)
    assert {"budget", "deadline", "time of the run", "1 day"} <= texts


def test_every_point_of_a_crowded_front_has_its_number():
    rng = random.Random(0)
    places = [(4.4 * x, 2.9 * (1 - x)) for x in sorted(rng.random() for _ in range(200))]
    groups = charts.near_groups(places)
    assert [place for group in groups for place in group] == list(range(200))
    assert 5 < len(groups) < 30


@pytest.mark.parametrize("count", [1, 2])
def test_a_front_of_few_points_is_numbered_whole(count):
    assert charts.near_groups([(1.0, 2.0), (2.0, 1.0)][:count]) == [[place] for place in range(count)]


def _labels(points, path):
    """Boxes of the numbers at a front's points, in pixels, as matplotlib draws them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    figures = []

    class Kept(Figure):
        def savefig(self, *args, **kwargs):
            figures.append(self)
            super().savefig(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure", Kept)
        pictures.pareto(points, path)
    (figure,) = figures
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [each for each in figure.axes[0].texts if isinstance(each, Annotation)]
    return [each.get_window_extent(canvas.get_renderer()) for each in texts]


def test_numbers_of_a_narrow_front_among_dear_ways_lie_apart(tmp_path):
    ways = [(333, 53.0), (336, 18.0), (344, 5.2), (370, 2.8), (478, 1.8), (827, 1.6), (1524, 1.45), (2910, 1.4)]
    front = [ParetoPoint(name="", seconds=seconds, cost=cost, front=True) for seconds, cost in ways]
    grey = [ParetoPoint(name="", seconds=x, cost=y, front=False) for x in (400, 30e3) for y in (2.0, 400.0)]
    boxes = _labels([*front, *grey], tmp_path / "apart.png")
    assert len(boxes) >= 6
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_ways_far_beyond_the_front_are_counted_and_not_drawn(tmp_path):
    far = [ParetoPoint(name="", seconds=2e5, cost=cost, front=False) for cost in (1e6, 6e5)]
    texts = texts_of(lambda path: pictures.pareto([*WAYS, *far], path), tmp_path)
    assert any(text.startswith("other ways, 3 (1 of them beyond the axes)") for text in texts)


def test_a_run_of_minutes_has_ticks_at_minutes(tmp_path):
    points = [ParetoPoint(name="", seconds=s, cost=1e4 / s, front=True) for s in (250.0, 2000.0)]
    texts = texts_of(lambda path: pictures.pareto(points, path), tmp_path)
    assert {"5 min", "10 min", "20 min"} <= texts


@pytest.mark.parametrize("costs", [(0.0, 0.0), (50.0, 0.0)])
def test_ways_that_cost_nothing_are_drawn_from_zero(tmp_path, costs):
    points = [ParetoPoint(name="own", seconds=1e4 * 2**i, cost=cost, front=True) for i, cost in enumerate(costs)]
    texts = texts_of(lambda path: pictures.pareto(points, path, budget_usd=20.0), tmp_path)
    assert {"$0", "2 h 47 min, " + ("$50" if costs[0] else "$0") + ": own"} <= texts


def test_one_way_is_a_picture_too(tmp_path):
    texts = texts_of(lambda path: pictures.pareto(WAYS[:1], path), tmp_path)
    assert "24 h 00 min, $90k: 64x8xh100-sxm" in texts and "budget" not in texts


def test_what_may_not_fit_is_said_of_its_point(tmp_path):
    points = [
        ParetoPoint(name=name, seconds=86400.0, cost=9e4, front=True, unsure=name == "l4") for name in ("l4", "t4")
    ]
    texts = texts_of(lambda path: pictures.pareto(points, path), tmp_path)
    assert "24 h 00 min, $90k: l4, may not fit" in texts and "24 h 00 min, $90k: t4" in texts


def test_scatter_says_the_median_error_and_gathers_small_sources(tmp_path):
    points = [ScatterPoint(source=f"s{i}", measured=100.0 * 2**i, predicted=110.0 * 2**i) for i in range(12)]
    texts = texts_of(lambda path: pictures.scatter([*points, points[0]], path, unit="GiB"), tmp_path)
    assert "13 measurements" in texts and "median error 10.0%" in texts
    assert "3 other sources" in texts and "measured (GiB)" in texts


@pytest.mark.parametrize(("value", "text"), [(300, "300"), (20e3, "20k"), (1.5e6, "1.5M"), (2e12, "2T"), (0.5, "0.5")])
def test_short(value, text):
    assert charts.short(value) == text
