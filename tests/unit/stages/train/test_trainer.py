"""What the trainer counts against what is known by definition."""

from __future__ import annotations

import json

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.stages.train import run


def test_memory_by_class_is_what_the_tensors_take(make_recipe, inputs_for, tmp_path) -> None:
    recipe = make_recipe(duration="2 steps")
    with Events(None, run="t") as events:
        (tmp_path / "out").mkdir()
        out = tmp_path / "out"
        run(Context(recipe=recipe, inputs=inputs_for(recipe), out=out, root=tmp_path, events=events))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    memory = summary["memory"]
    assert memory["weights"] == memory["gradients"] == 4 * summary["parameters"]
    assert 0 <= memory["optimizer"] - 8 * summary["parameters"] < 1000, "two moments, and a step count per parameter"
    assert memory["activations"] > 0
    assert memory["workspace"] > 50e6, "the process itself, Python and torch"
    assert summary["process_bytes"] > 50e6
