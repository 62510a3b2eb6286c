from __future__ import annotations

import random

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
    seconds = sorted(rng.uniform(1e4, 1e6) for _ in range(200))
    front = [ParetoPoint(name=str(i), seconds=s, cost=1e9 / s, front=True) for i, s in enumerate(seconds)]
    groups = charts.near_groups(front)
    assert [place for group in groups for place in group] == list(range(200))
    assert 10 < len(groups) < 30


@pytest.mark.parametrize("count", [1, 2])
def test_a_front_of_few_points_is_numbered_whole(count):
    assert charts.near_groups(WAYS[:count]) == [[place] for place in range(count)]


def test_one_way_is_a_picture_too(tmp_path):
    texts = texts_of(lambda path: pictures.pareto(WAYS[:1], path), tmp_path)
    assert "24 h 00 min, $90k: 64x8xh100-sxm" in texts and "budget" not in texts


def test_scatter_says_the_median_error_and_gathers_small_sources(tmp_path):
    points = [ScatterPoint(source=f"s{i}", measured=100.0 * 2**i, predicted=110.0 * 2**i) for i in range(12)]
    texts = texts_of(lambda path: pictures.scatter([*points, points[0]], path, unit="GiB"), tmp_path)
    assert "13 measurements" in texts and "median error 10.0%" in texts
    assert "3 other sources" in texts and "measured (GiB)" in texts


@pytest.mark.parametrize(("value", "text"), [(300, "300"), (20e3, "20k"), (1.5e6, "1.5M"), (2e12, "2T"), (0.5, "0.5")])
def test_short(value, text):
    assert charts.short(value) == text
