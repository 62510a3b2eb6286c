"""Pictures say what the data say: read back from the SVG text, or from the pixels of the PNG."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from trainwright.cli import pictures
from trainwright.cli.pictures import MemoryBar, ParetoPoint, ScalingPoint, ScatterPoint, StepBar
from trainwright.core.errors import MachineError, MissingPackage, RecipeError

GIB = 2.0**30
BARS = [
    MemoryBar(
        name="fsdp 8", parts={"weights": 10 * GIB, "optimizer": 20 * GIB, "logits": 0.0}, available_bytes=79 * GIB
    ),
    MemoryBar(name="ddp 8", parts={"weights": 40 * GIB, "optimizer": 80 * GIB}, available_bytes=79 * GIB),
]
WAYS = [
    ParetoPoint(name="64x8xh100-sxm", seconds=86400.0, usd=90e3, front=True),
    ParetoPoint(name="8x8xh100-sxm", seconds=6 * 86400.0, usd=60e3, front=True),
    ParetoPoint(name="8x8xa100-80gb", seconds=12 * 86400.0, usd=70e3, front=False),
]
DRAWINGS = {
    "memory": lambda path: pictures.memory_bars(BARS, path),
    "step": lambda path: pictures.step_bars([StepBar(name="one", parts={"forward": 0.3, "backward": 0.6})], path),
    "scaling": lambda path: pictures.scaling(
        [ScalingPoint(devices=8, tokens_per_s=1e4), ScalingPoint(devices=64, tokens_per_s=6e4)], path, stops_at=64
    ),
    "pareto": lambda path: pictures.pareto(WAYS, path, deadline_s=7 * 86400.0, budget_usd=80e3, title="ways"),
    "scatter": lambda path: pictures.scatter(
        [
            ScatterPoint(source="a", measured=100.0, predicted=110.0),
            ScatterPoint(source="b", measured=9.0, predicted=9.0),
        ],
        path,
    ),
}


@pytest.mark.parametrize("suffix", pictures.SUFFIXES)
@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_equal_data_make_equal_bytes(draw, suffix, tmp_path):
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    draw(first)
    draw(second)
    assert first.read_bytes() == second.read_bytes()


def test_memory_bars_say_what_fits_and_draw_only_what_is_there(tmp_path):
    texts = _texts(DRAWINGS["memory"], tmp_path)
    assert "fsdp 8: 30 GiB of 79 GiB" in texts
    assert "ddp 8: 120 GiB of 79 GiB: does not fit" in texts
    assert {"weights", "optimizer"} <= texts and "logits" not in texts


def test_bars_are_as_long_as_their_parts(tmp_path):
    DRAWINGS["memory"](tmp_path / "picture.svg")
    lengths = {tone: _lengths(tmp_path / "picture.svg", pictures.TONES[tone]) for tone in (0, 2)}
    assert lengths[0][1] == pytest.approx(4 * lengths[0][0], rel=1e-3)
    assert lengths[2][0] == pytest.approx(2 * lengths[0][0], rel=1e-3)
    assert lengths[2][1] == pytest.approx(2 * lengths[0][1], rel=1e-3)


def test_every_class_and_phase_of_a_prediction_has_a_tone():
    from trainwright.planner.predict.step import StepTable
    from trainwright.spec.measures import MemoryUse, PhaseTimes

    assert set(MemoryUse.names()) <= set(pictures.MEMORY_TONES)
    assert set(PhaseTimes.names()) | set(StepTable.__dataclass_fields__) <= set(pictures.PHASE_TONES)


def test_short_steps_are_in_milliseconds(tmp_path):
    texts = _texts(DRAWINGS["step"], tmp_path)
    assert "time of one step (ms)" in texts and {"300", "600"} <= texts


def test_scaling_shows_efficiency_against_the_fewest_devices(tmp_path):
    texts = _texts(DRAWINGS["scaling"], tmp_path)
    assert {"stops paying beyond 64", "ideal", "strong", "tokens/s", "efficiency (%)"} <= texts


def test_pareto_explains_the_front_alone(tmp_path):
    texts = _texts(DRAWINGS["pareto"], tmp_path)
    assert "24 h 00 min, $90k: 64x8xh100-sxm" in texts
    assert "6 days, $60k: 8x8xh100-sxm" in texts
    assert not any("a100" in text for text in texts)
    assert {"budget", "deadline", "time of the run (days)"} <= texts


def test_numbers_of_a_crowded_front_keep_their_distance():
    rng = random.Random(0)
    seconds = sorted(rng.uniform(1e4, 1e6) for _ in range(200))
    front = [ParetoPoint(name=str(i), seconds=s, usd=1e9 / s, front=True) for i, s in enumerate(seconds)]
    kept = pictures.spaced(front)
    assert kept[0] is front[0] and kept[-1] is front[-1]
    assert 10 < len(kept) < 25


@pytest.mark.parametrize("count", [1, 2])
def test_a_front_of_few_points_is_numbered_whole(count):
    assert pictures.spaced(WAYS[:count]) == WAYS[:count]


def test_one_way_is_a_picture_too(tmp_path):
    texts = _texts(lambda path: pictures.pareto(WAYS[:1], path), tmp_path)
    assert "24 h 00 min, $90k: 64x8xh100-sxm" in texts and "budget" not in texts


def test_scatter_says_the_median_error_and_gathers_small_sources(tmp_path):
    points = [ScatterPoint(source=f"s{i}", measured=100.0 * 2**i, predicted=110.0 * 2**i) for i in range(12)]
    texts = _texts(lambda path: pictures.scatter([*points, points[0]], path, unit="GiB"), tmp_path)
    assert "13 measurements" in texts and "median error 10.0%" in texts
    assert "3 other sources" in texts and "measured (GiB)" in texts


@pytest.mark.parametrize(("longest_s", "unit"), [(3 * 86400, "days"), (9000, "hours"), (300, "minutes"), (20, "s")])
def test_time_unit(longest_s, unit):
    assert pictures.time_unit(longest_s)[0] == unit


@pytest.mark.parametrize(("value", "text"), [(300, "300"), (20e3, "20k"), (1.5e6, "1.5M"), (2e12, "2T"), (0.5, "0.5")])
def test_short(value, text):
    assert pictures.short(value) == text


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"picture.pdf: cannot draw such a file .*expected \.svg or \.png"):
        DRAWINGS["memory"](tmp_path / "picture.pdf")


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'trainwright\[pictures\]'"):
        DRAWINGS["memory"](tmp_path / "picture.svg")


def test_importing_the_module_loads_no_matplotlib():
    code = "import sys, trainwright.cli.pictures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _texts(draw, folder):
    draw(folder / "picture.svg")
    root = ET.parse(folder / "picture.svg").getroot()
    return {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}


def _lengths(path, tone):
    """Widths of the rectangles of a tone, from the top down; the legend's comes last and is left out."""
    paths = re.findall(rf'd="([^"]*)"[^>]*style="fill: {tone}', path.read_text())
    boxes = [[tuple(map(float, pair)) for pair in re.findall(r"[ML] (\S+) (\S+)", text)] for text in paths]
    widths = [max(x for x, _ in box) - min(x for x, _ in box) for box in boxes]
    return widths[:2]


def test_where_no_picture_can_be_is_said_before_anything_is_computed(tmp_path):
    assert pictures.drawable(tmp_path / "a.svg") == tmp_path / "a.svg"
    with pytest.raises(RecipeError, match="cannot draw such a file"):
        pictures.drawable(tmp_path / "a.gif")
    with pytest.raises(MachineError, match="cannot write the picture"):
        pictures.drawable(tmp_path / "none" / "a.svg")


def test_a_long_line_over_a_bar_stays_inside_the_picture(tmp_path):
    name = "dp_replicate 8, dp_shard 64, tp 8, pp 16, cp 4, ep 8, ZeRO-1, 12 chunks a stage; micro batch 1, full"
    short, long = tmp_path / "short.png", tmp_path / "long.png"
    for path, text in ((short, "one"), (long, name)):
        pictures.memory_bars([MemoryBar(name=text, parts={"weights": 2.0**34}, available_bytes=2.0**36)], path)
    widths = [int.from_bytes(path.read_bytes()[16:20], "big") for path in (short, long)]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
