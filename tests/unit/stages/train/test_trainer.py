"""What the trainer counts against what is known by definition."""

from __future__ import annotations

import json

from trainwright.artifact.events import Events
from trainwright.stages.train import run


def test_memory_by_class_is_what_the_tensors_take(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(duration="2 steps")
    with Events(None, run="t") as events:
        (tmp_path / "out").mkdir()
        run(recipe, inputs_for(recipe), tmp_path / "out", events)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    memory = summary["memory"]
    assert memory["weights"] == memory["gradients"] == 4 * summary["parameters"]
    assert 0 <= memory["optimizer"] - 8 * summary["parameters"] < 1000, "two moments, and a step count per parameter"
    assert memory["activations"] > 0
    assert memory["workspace"] > 50e6, "the process itself, Python and torch"
