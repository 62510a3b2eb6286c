"""Schedule-free runs: the average is what is measured, kept beside the weights, and the result; resumption is exact."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.shards import TokenDataset
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import ScheduleFreeSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.weights.schedule_free import ScheduleFreeOptimizers

TRAIN = {
    "optimizer": {"name": "schedule-free-adamw", "lr": 0.01, "betas": [0.8, 0.99]},
    "schedule": {"name": "constant", "warmup": "2 steps"},
}


def test_the_network_has_the_average_inside_of_result_and_its_own_weights_after_it():
    network = Decoder(ModelSection(layers=1, width=16, heads=2).spec(vocabulary=20))
    network.initialise(1)
    optimizers = ScheduleFreeOptimizers(network, Optimizers(network, ScheduleFreeSection(lr=0.1)))
    begun = network.norm.weight.detach().clone()
    assert torch.equal(dict(optimizers.tensors())["norm.weight.average"], begun), "before the first update"
    for _ in range(4):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizers.step(1.0)
    trained = network.norm.weight.detach().clone()
    states = dict(optimizers.tensors())
    with optimizers.result():
        inside = network.norm.weight.detach().clone()
    assert torch.equal(inside, states["norm.weight.average"]) and not torch.equal(inside, trained)
    assert torch.equal(network.norm.weight, trained), "to the bit"
    torch.testing.assert_close(0.1 * states["norm.weight.z"] + 0.9 * inside, trained)


def test_result_validation_and_checkpoint_have_the_average(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(**TRAIN)
    inputs = inputs_for(recipe)
    train(recipe, inputs, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["weights"] == "averaged"
    assert 0 <= summary["memory"]["optimizer"] - 8 * summary["parameters"] < 1000, "the average takes nothing"
    network, _ = load_bundle(tmp_path / "run")
    (newest,) = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1:]
    states, weights = load_file(newest / "optimizer.safetensors"), load_file(newest / "model.safetensors")
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, states[f"{name}.average"])
        assert not torch.equal(parameter, weights[name])
    dataset = TokenDataset.open(inputs["dataset"].path)
    measured = load_task(recipe, dataset).evaluate(
        network, dataset.splits["validation"], EvaluationOptions(batch_sequences=1, tokens=None)
    )
    assert summary["validation"]["metrics"]["loss"]["value"] == pytest.approx(measured.metrics["loss"].value, rel=1e-6)


def test_a_killed_run_goes_on_to_the_same_bits(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(**TRAIN, exec_checkpoint_every=1e-9)

    def kill(event):
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    train(recipe, inputs_for(recipe), tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs_for(recipe), tmp_path / "killed", (kill,))
    train(recipe, inputs_for(recipe), tmp_path / "killed")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
