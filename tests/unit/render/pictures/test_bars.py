from __future__ import annotations

import pytest

from fixtures.drawings import DRAWINGS, lengths_of, texts_of
from trainwright.render import pictures
from trainwright.render.pictures import (
    MemoryBar,
    bars,
    figure,
)


def test_memory_bars_say_what_fits_and_draw_only_what_is_there(tmp_path):
    texts = texts_of(DRAWINGS["memory"], tmp_path)
    assert "fsdp 8: 30 GiB of 79 GiB" in texts
    assert "ddp 8: 120 GiB of 79 GiB: does not fit" in texts
    assert {"weights", "optimizer"} <= texts and "logits" not in texts


def test_bars_are_as_long_as_their_parts(tmp_path):
    DRAWINGS["memory"](tmp_path / "picture.svg")
    lengths = {tone: lengths_of(tmp_path / "picture.svg", figure.TONES[tone]) for tone in (0, 2)}
    assert lengths[0][1] == pytest.approx(4 * lengths[0][0], rel=1e-3)
    assert lengths[2][0] == pytest.approx(2 * lengths[0][0], rel=1e-3)
    assert lengths[2][1] == pytest.approx(2 * lengths[0][1], rel=1e-3)


def test_every_class_and_phase_of_a_prediction_has_a_tone():
    from trainwright.planner.forecast.time.step import StepTable
    from trainwright.spec.measures import MemoryUse, PhaseTimes

    assert set(MemoryUse.names()) <= set(bars.MEMORY_TONES)
    assert set(PhaseTimes.names()) | set(StepTable.__dataclass_fields__) <= set(bars.PHASE_TONES)


def test_short_steps_are_in_milliseconds(tmp_path):
    texts = texts_of(DRAWINGS["step"], tmp_path)
    assert "time of one step (ms)" in texts and {"300", "600"} <= texts


def test_a_long_line_over_a_bar_stays_inside_the_picture(tmp_path):
    name = "dp_replicate 8, dp_shard 64, tp 8, pp 16, cp 4, ep 8, ZeRO-1, 12 chunks a stage; micro batch 1, full"
    short, long = tmp_path / "short.png", tmp_path / "long.png"
    for path, text in ((short, "one"), (long, name)):
        pictures.memory_bars([MemoryBar(name=text, parts={"weights": 2.0**34}, available_bytes=2.0**36)], path)
    widths = [int.from_bytes(path.read_bytes()[16:20], "big") for path in (short, long)]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
