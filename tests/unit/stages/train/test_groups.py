"""Runs with groups of parameters: the frozen ones stay, without gradient or state; the log says who got what."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.model.build import build_network


def test_a_run_trains_the_rest_and_says_who_got_what(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(
        optimizer={"name": "adamw", "groups": [{"match": "blocks.0.*", "frozen": True}]}, exec_checkpoint_every=1e-9
    )
    inputs = inputs_for(recipe)

    def kill(event):
        if event.kind == "progress" and event.name == "train" and event.value == 3:
            raise SystemExit(137)

    train(recipe, inputs, tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs, tmp_path / "killed", (kill,))
    train(recipe, inputs, tmp_path / "killed")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    begun = build_network(recipe.model_spec(vocabulary=ours["embedding"].shape[0]))
    begun.initialise(recipe.seed)
    for name, parameter in begun.named_parameters():
        assert torch.equal(ours[name], theirs[name]), name
        assert torch.equal(ours[name], parameter) == name.startswith("blocks.0."), name
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    frozen = sum(4 * each.numel() for name, each in theirs.items() if name.startswith("blocks.0."))
    assert summary["memory"]["gradients"] == summary["memory"]["weights"] - frozen
    assert 0 <= summary["memory"]["optimizer"] - 2 * summary["memory"]["gradients"] < 1000
    said = [event.text for event in read_events(tmp_path / "whole" / "events.jsonl") if event.kind == "message"]
    assert any("'blocks.0.*'" in text and "frozen" in text for text in said), said


def test_the_head_alone_can_be_trained(make_recipe, inputs_for, train, tmp_path):
    frozen = [{"match": match, "frozen": True} for match in ("blocks.*", "embedding*", "norm*")]
    recipe = make_recipe(optimizer={"name": "adamw", "groups": frozen})
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"tied": False})})
    train(recipe, inputs_for(recipe), tmp_path / "run")
    states = load_file(next(iter((tmp_path / "run" / "checkpoints").iterdir())) / "optimizer.safetensors")
    assert {name.rpartition(".")[0] for name in states} == {"head.weight"}
