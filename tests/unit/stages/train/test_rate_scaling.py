"""A run whose rates follow its batch is the run with those rates written out."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.artifact.model_folder import read_shape


def test_scaled_rates_are_the_rates_times_the_factor(make_recipe, inputs_for, train, tmp_path):
    scaling = {"base_batch_tokens": 16}  # of batches of 64 tokens: twice the rate
    scaled = make_recipe(optimizer={"name": "adamw", "lr": 1e-3}, rate_scaling=scaling)
    written = make_recipe(optimizer={"name": "adamw", "lr": 2e-3})
    train(scaled, inputs_for(scaled), tmp_path / "scaled")
    train(written, inputs_for(written), tmp_path / "written")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("scaled", "written"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    events = list(read_events(tmp_path / "scaled" / "events.jsonl"))
    assert max(event.value for event in events if event.name == "train/lr") == pytest.approx(2e-3)
    assert any("2 times the recipe's" in event.text for event in events if event.kind == "message")


def test_rates_that_follow_the_width_are_told_and_logged(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(optimizer={"name": "adamw", "lr": 1e-3})
    keys = recipe.model_dump(by_alias=True, exclude_unset=True)
    keys["model"]["mup"] = {"base_width": 8}  # of 32
    wide = type(recipe).model_validate(keys)
    train(wide, inputs_for(wide), tmp_path / "wide")
    events = list(read_events(tmp_path / "wide" / "events.jsonl"))
    peaks = {name: max(each.value for each in events if each.name == name) for name in ("train/lr", "train/matrix_lr")}
    assert peaks == {"train/lr": pytest.approx(1e-3), "train/matrix_lr": pytest.approx(2.5e-4)}
    told = [event.text for event in events if event.kind == "message"]
    assert any("4 times as wide as that of the recipe's rates" in text for text in told)
    assert any("a peak rate of 0.00025, weight decay 0.4" in text for text in told)
    assert read_shape(tmp_path / "wide").scales.logits_divisor == 4.0
