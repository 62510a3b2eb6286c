"""A run with terms beside its loss: what training reports has them, what validation reports has not."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.spec.sections.updates.loss import LossSection


def test_validation_is_of_the_plain_loss(make_recipe, inputs_for, train, tmp_path) -> None:
    """With a rate that moves nothing all validations see the first weights, and losses of training have the terms."""
    still = {"optimizer": {"name": "sgd", "lr": 1e-30, "momentum": 0}, "duration": "4 steps"}
    found = {}
    for name, loss in (("plain", {}), ("terms", {"label_smoothing": 0.5, "z_weight": 1.0, "l1_weight": 1.0})):
        recipe = make_recipe(**still, loss=loss)
        train(recipe, inputs_for(recipe), tmp_path / name)
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        events = list(read_events(tmp_path / name / "events.jsonl"))
        said = [event.text for event in events if event.kind == "message"]
        found[name] = summary["validation"]["metrics"], summary["train_loss"], said
    assert found["terms"][0] == found["plain"][0]
    assert found["terms"][1] > found["plain"][1] + 1, "log Z of 300 entries is 5.7"
    assert sum("losses of training are with" in line for line in found["terms"][2]) == 1
    assert not any("losses of training are with" in line for line in found["plain"][2])


def test_a_penalty_on_squares_is_decay_of_plain_descent(make_recipe, inputs_for, train, tmp_path) -> None:
    """And none of it is lost when gradients are clipped, for they are clipped with it."""
    descent = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
    penalised = make_recipe(optimizer=descent, loss={"l2_weight": 0.05}, clip_norm=None)
    decayed = make_recipe(optimizer=descent | {"weight_decay": 0.05}, clip_norm=None)
    for name, recipe in (("penalised", penalised), ("decayed", decayed)):
        train(recipe, inputs_for(recipe), tmp_path / name)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("penalised", "decayed"))
    for name, weights in theirs.items():
        torch.testing.assert_close(ours[name], weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", [{"label_smoothing": 0.1, "l1_weight": 1e-3}])
def test_a_run_goes_on_to_the_same_bits(loss, make_recipe, inputs_for, train, tmp_path) -> None:
    recipe = make_recipe(exec_checkpoint_every=1e-9, loss=loss)
    assert recipe.train.loss == LossSection(**loss)

    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    with pytest.raises(SystemExit):
        train(recipe, inputs_for(recipe), tmp_path / "killed", (kill,))
    for name in ("killed", "whole"):
        train(recipe, inputs_for(recipe), tmp_path / name)
    ended = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert ended[0] == ended[1]
