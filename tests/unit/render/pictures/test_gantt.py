"""Bars lie where their phases were; every lane and every phase is named; equal data make equal bytes."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree as ET

import pytest

from trainwright.render.pictures.bars import PHASE_TONES
from trainwright.render.pictures.figure import TONES
from trainwright.render.pictures.gantt import LEFT, RIGHT, WIDTH, Lane, gantt

SVG = "{http://www.w3.org/2000/svg}"
LANES = (
    Lane(name="rank 0", bars=[("forward", 0.0, 0.25), ("backward", 0.25, 1.0)]),
    Lane(name="rank <1>", bars=[("forward", 0.5, 1.0), ("host_to_device", 1.0, 2.0)]),
)


@pytest.fixture
def picture(tmp_path):
    gantt(LANES, tmp_path / "step.svg", title="a & b")
    return ET.fromstring((tmp_path / "step.svg").read_text())


def test_bars_are_as_long_as_their_phases(picture) -> None:
    pixels_per_s = (WIDTH - LEFT - RIGHT) / 2.0
    bars = {
        hint.text: (float(bar.get("x")), float(bar.get("width")), bar.get("fill"))
        for bar in picture.iter(f"{SVG}rect")
        if (hint := bar.find(f"{SVG}title")) is not None
    }
    tone = TONES[PHASE_TONES["backward"]]
    assert bars["backward: 750 ms"] == pytest.approx((LEFT + 0.25 * pixels_per_s, 0.75 * pixels_per_s, tone), abs=0.01)
    assert bars["host to device: 1 s"][0] == pytest.approx(LEFT + pixels_per_s, abs=0.01)
    assert max(x + width for x, width, _ in bars.values()) == pytest.approx(WIDTH - RIGHT, abs=0.01)


def test_lanes_phases_and_times_are_named(picture) -> None:
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"a & b", "rank 0", "rank <1>", "forward", "backward", "host to device", "2 s"} <= set(texts)
    assert "communicate" not in texts, "only what is there"
    tops = {bar.get("y") for bar in picture.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None}
    assert len(tops) == len(LANES)


@pytest.mark.parametrize(
    ("end_s", "labels"),
    [
        (0.0957, ["0 s", "20 ms", "40 ms", "60 ms", "80 ms"]),
        (2.0, ["0 s", "500 ms", "1 s", "1.5 s", "2 s"]),
        (0.005, ["0 s", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms"]),
        (31.0, ["0 s", "10 s", "20 s", "30 s"]),
    ],
)
def test_times_on_the_axis_are_round(tmp_path, end_s, labels) -> None:
    gantt([Lane(name="rank 0", bars=[("forward", 0.0, end_s)])], tmp_path / "step.svg", title="t")
    texts = ET.fromstring((tmp_path / "step.svg").read_text()).iter(f"{SVG}text")
    at = {text.text: float(text.get("x")) for text in texts if text.text.endswith("s")}
    assert list(at) == labels
    places = list(at.values())
    assert places[0] == LEFT and places[-1] <= WIDTH - RIGHT
    apart = [second - first for first, second in itertools.pairwise(places)]
    assert apart == pytest.approx([apart[0]] * len(apart), abs=0.11)


def test_equal_data_make_equal_bytes(tmp_path) -> None:
    for name in ("one.svg", "two.svg"):
        gantt(LANES, tmp_path / name, title="t")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
