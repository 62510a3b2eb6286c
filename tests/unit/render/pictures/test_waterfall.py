from __future__ import annotations

import pytest

from fixtures.drawings import lengths_of
from trainwright.render.pictures.waterfall import BASE_TONE, GAIN_TONE, LEFT_OUT_TONE, WaterfallStep, waterfall


def step(name, gain, *, kept):
    return WaterfallStep(name=name, gain=gain, low=0.95 * gain, high=1.05 * gain, predicted=gain, kept=kept)


def test_bars_are_what_each_step_adds_to_those_that_were_kept(tmp_path) -> None:
    steps = [step("one", 2.0, kept=True), step("two", 1.5, kept=False), step("three", 1.25, kept=True)]
    waterfall(100.0, steps, tmp_path / "fall.svg")
    naive, tuned = lengths_of(tmp_path / "fall.svg", BASE_TONE)
    first, third = lengths_of(tmp_path / "fall.svg", GAIN_TONE)
    (second,) = lengths_of(tmp_path / "fall.svg", LEFT_OUT_TONE)
    assert tuned == pytest.approx(2.5 * naive, rel=1e-3)
    assert first == pytest.approx(naive, rel=1e-3)
    assert second == pytest.approx(naive, rel=1e-3), "half of 200"
    assert third == pytest.approx(0.5 * naive, rel=1e-3), "what was left out changes nothing"


def test_the_last_bar_is_what_was_measured_of_the_whole(tmp_path) -> None:
    waterfall(100.0, [step("one", 2.0, kept=True)], tmp_path / "fall.svg", last="as given", end=350.0)
    naive, last = lengths_of(tmp_path / "fall.svg", BASE_TONE)
    assert last == pytest.approx(3.5 * naive, rel=1e-3)


def test_a_ladder_that_was_never_measured_is_drawn_too(tmp_path) -> None:
    waterfall(0.0, [], tmp_path / "fall.svg", title="nothing")
    assert (tmp_path / "fall.svg").stat().st_size > 0
