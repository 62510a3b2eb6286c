"""Random layouts of a small model are refused in one line, or they train (``make soak``)."""

from __future__ import annotations

import random
import re

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

LAYOUTS = 40
AXES = {"dp_replicate": (1, 2, 3), "dp_shard": (1, 2, 3, 4), "pp": (1, 2, 3), "tp": (1, 2, 3, 8), "cp": (1, 2, 3)}
MORE = {
    "zero_stage": (0, 1, 2, 3),
    "schedule": ("gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"),
    "virtual_stages": (1, 2, 3),
    "sequence_parallel": ("true", "false"),
}
MOST_RANKS = 8
MODEL = {"layers": (1, 2, 4), "family": ("llama", "gpt2"), "width": (32, 48)}
BATCH = ("train.batch_tokens=128", "train.batch_tokens=96")


def drawn(dice: random.Random) -> list[str]:
    """Overrides of a recipe: some axes, some switches, a shape, a batch."""
    while True:
        axes = {axis: dice.choice(sizes) for axis, sizes in AXES.items() if dice.random() < 0.5}
        ranks = 1
        for size in axes.values():
            ranks *= size
        if 1 < ranks <= MOST_RANKS:
            break
    layout = axes | {name: dice.choice(values) for name, values in MORE.items() if dice.random() < 0.3}
    shape = {name: dice.choice(values) for name, values in MODEL.items() if dice.random() < 0.5}
    words = [f"train.exec.layout.{name}={value}" for name, value in layout.items()]
    return [*words, *(f"model.{name}={value}" for name, value in shape.items()), dice.choice(BATCH)]


def test_a_random_layout_trains_or_is_refused_in_one_line(make_project, record_property) -> None:
    project, dice = make_project(), random.Random(17)
    trained, refused = 0, 0
    for _ in range(LAYOUTS):
        words = drawn(dice)
        done = project.call("train", "train.duration=2 steps", "train.schedule.warmup=0 steps", *words)
        said = done.stderr.strip()
        assert "Traceback" not in said, (words, said)
        if done.returncode == 0:
            trained += 1
            continue
        assert done.returncode in (1, 2, 3), (words, done.returncode, said)
        lines = [line for line in said.splitlines() if re.match(r"error: ", line)]
        assert lines, (words, said)
        refused += 1
    record_property("trained", trained)
    record_property("refused", refused)
    assert trained and refused
