"""A run whose rates follow its batch is the run with those rates written out."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events


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
