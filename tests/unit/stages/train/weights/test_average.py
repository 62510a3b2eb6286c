"""The average of weights: a brute-force mean over saved ones, what it is used for, and what is left after a kill."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from trainwright.artifact.events import read_events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import RecipeError
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection
from trainwright.spec.sections.weights.average import EmaSection
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.weights.average import AveragedOptimizers

STEPS = 9


def network_of():
    network = Decoder(ModelSection(layers=1, width=16, heads=2).spec(vocabulary=20))
    network.initialise(1)
    return network


def trained(section, start=0, steps=STEPS):
    """The average after some updates, and the weights before the first and after each of them."""
    network = network_of()
    optimizers = AveragedOptimizers(network, Optimizers(network, AdamWAloneSection(lr=1e-2)), section, start)
    saved = [network.norm.weight.detach().double().clone()]
    for step in range(steps):
        for number, parameter in enumerate(network.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * step + number))
        optimizers.step(1.0)
        optimizers.zero_grad()
        saved.append(network.norm.weight.detach().double().clone())
    return network, optimizers, saved


def shares(early, decay, count):
    """Of the weights an average began with, then of those that it saw: how much each has of it, by brute force."""
    if early == "unbiased":
        powers = [decay ** (count - each) for each in range(1, count + 1)]
        return [0.0, *(power / sum(powers) for power in powers)]
    found = [1.0]
    for number in range(count):
        keeps = decay if early == "constant" else min(decay, (1 + number) / (10 + number))
        found = [share * keeps for share in found] + [1 - keeps]
    return found


@pytest.mark.parametrize("early", ["constant", "unbiased", "ramp"])
@pytest.mark.parametrize(("every", "start"), [(1, 0), (1, 4), (2, 0), (3, 2)])
def test_it_is_the_mean_of_saved_weights(early, every, start):
    section = EmaSection(decay=0.8, every_steps=every, early=early)
    _, optimizers, saved = trained(section, start)
    seen = [saved[start], *saved[start + every :: every]]
    truth = sum(share * weight for share, weight in zip(shares(early, 0.8, len(seen) - 1), seen, strict=True))
    torch.testing.assert_close(dict(optimizers.tensors())["norm.weight.average"].double(), truth, rtol=1e-6, atol=0)


def test_training_is_left_alone_and_the_network_gets_its_weights_back():
    network, optimizers, _ = trained(EmaSection(decay=0.5))
    plain, _, _ = trained(EmaSection(decay=0.9, use=False))
    assert all(map(torch.equal, network.parameters(), plain.parameters()))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    averages = {name: tensor.clone() for name, tensor in optimizers.tensors()}
    with optimizers.result():
        assert all(torch.equal(weight, averages[f"{name}.average"]) for name, weight in network.named_parameters())
    with pytest.raises(ZeroDivisionError), optimizers.result():
        _ = 1 / 0
    assert all(map(torch.equal, network.parameters(), before))
    assert all(torch.equal(tensor, averages[name]) for name, tensor in optimizers.tensors())


@pytest.mark.parametrize(("use", "start"), [(False, 0), (True, 4)])
def test_what_is_not_used_or_not_begun_takes_nobodys_place(use, start):
    network, optimizers, saved = trained(EmaSection(decay=0.5, use=use), start, steps=3)
    with optimizers.result():
        assert torch.equal(network.norm.weight.double(), saved[-1])
    kept = dict(optimizers.tensors())["norm.weight.average"]
    assert torch.equal(kept.double(), saved[-1]) == (start > 3), "what a checkpoint takes for the average"


def test_weights_in_16_bits_have_an_average_in_32():
    network = network_of().to(torch.bfloat16)
    optimizers = AveragedOptimizers(network, Optimizers(network, AdamWAloneSection()), EmaSection(decay=0.99), 0)
    for _ in range(3):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizers.step(1.0)
    average = dict(optimizers.tensors())["norm.weight.average"]
    assert average.dtype == torch.float32
    before = network.norm.weight.detach().clone()
    with optimizers.result():
        assert torch.equal(network.norm.weight, average.bfloat16())
    assert torch.equal(network.norm.weight, before)


def test_state_is_taken_over_by_name():
    section = EmaSection(decay=0.8, every_steps=2, early="unbiased")
    _, whole, _ = trained(section, 1)
    network, first, _ = trained(section, 1, steps=4)
    begun = {name: tensor.clone() for name, tensor in first.tensors()}
    again = AveragedOptimizers(network, Optimizers(network, AdamWAloneSection(lr=1e-2)), section, 1)
    again.load(begun)
    for step in range(4, STEPS):
        for number, parameter in enumerate(network.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * step + number))
        again.step(1.0)
    mine, theirs = dict(again.tensors()), dict(whole.tensors())
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


EMA = {"decay": 0.7, "start": "2 steps", "early": "ramp"}


def test_result_and_validation_are_of_the_average(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(ema=EMA)
    inputs = inputs_for(recipe)
    result = train(recipe, inputs, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["weights"] == result.summary["weights"] == "averaged"
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
    said = [event.text for event in read_events(tmp_path / "run" / "events.jsonl") if event.kind == "message"]
    assert any("averaged weights" in text for text in said), said


def test_trained_weights_are_the_result_where_the_average_is_not_used(make_recipe, inputs_for, train, tmp_path):
    plain, kept = make_recipe(), make_recipe(ema=EMA | {"use": False})
    train(plain, inputs_for(plain), tmp_path / "plain")
    train(kept, inputs_for(kept), tmp_path / "kept")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("kept", "plain"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert json.loads((tmp_path / "kept" / "summary.json").read_text())["weights"] == "trained"


def test_a_killed_run_goes_on_to_the_same_bits(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(ema=EMA | {"every_steps": 2}, exec_checkpoint_every=1e-9)

    def kill(event):
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    train(recipe, inputs_for(recipe), tmp_path / "whole")
    with pytest.raises(SystemExit):
        train(recipe, inputs_for(recipe), tmp_path / "killed", (kill,))
    train(recipe, inputs_for(recipe), tmp_path / "killed")
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_its_bytes_are_the_optimizers(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(ema={}, duration="2 steps")
    train(recipe, inputs_for(recipe), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 0 <= summary["memory"]["optimizer"] - 12 * summary["parameters"] < 1000


def test_an_average_that_never_begins_is_refused(make_recipe, inputs_for, train, tmp_path):
    recipe = make_recipe(ema={"start": "8 steps"})
    with pytest.raises(RecipeError, match=r"train\.ema\.start: .*ends before.*8 steps.*fewer than the run's 8"):
        train(recipe, inputs_for(recipe), tmp_path / "run")


def test_a_step_whose_update_is_left_out_counts():
    network = network_of()
    optimizers = AveragedOptimizers(network, Optimizers(network, AdamWAloneSection(lr=1e-2)), EmaSection(decay=0.5), 2)
    first = network.norm.weight.detach().clone()
    optimizers.leave_out()
    assert not optimizers.result_is_average
    optimizers.leave_out()
    assert optimizers.result_is_average
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(1.0)
    average = dict(optimizers.tensors())["norm.weight.average"]
    torch.testing.assert_close(average, (first + network.norm.weight.detach()) / 2)
    unused = AveragedOptimizers(network, Optimizers(network, AdamWAloneSection()), EmaSection(use=False), 0)
    assert not unused.result_is_average
