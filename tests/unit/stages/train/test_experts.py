"""Training with experts: biases go on after a kill, their load is reported, and the result is read again."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.bundle import load_bundle
from trainwright.model.weights import load_weights
from trainwright.spec.recipe import Recipe

DEEPSEEK = {
    "family": "deepseek_v3",
    "latent": {"query_rank": 12, "kv_rank": 8, "rope_size": 4},
    "experts": {"count": 6, "active": 2, "ffn_width": 16, "shared_ffn_width": 16, "dense_layers": 1, "bias_rate": 0.02},
}
MIXTRAL = {"family": "mixtral", "experts": {"count": 4, "active": 2, "ffn_width": 16, "loss_weight": 0.1}}


@pytest.fixture
def mixing(make_recipe):
    """A recipe with experts, and these ``train`` keys."""

    def make(model=DEEPSEEK, **train) -> Recipe:
        plain = make_recipe(**train).model_dump(exclude_unset=True)
        return Recipe.model_validate(plain | {"model": plain["model"] | model})

    return make


def test_a_killed_run_goes_on_to_the_same_bits(mixing, inputs_for, train, tmp_path) -> None:
    recipe = mixing(exec_checkpoint_every=1e-9)

    def ended(name, *listeners) -> bytes:
        train(recipe, inputs_for(recipe), tmp_path / name, listeners)
        return (tmp_path / name / "model.safetensors").read_bytes()

    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    with pytest.raises(SystemExit):
        ended("killed", kill)
    assert ended("killed") == ended("whole")
    correction = load_weights(tmp_path / "whole" / "model.safetensors")["blocks.1.ffn.router.correction"]
    # Eight updates, each by one rate up or down.
    steps = correction / 0.02
    torch.testing.assert_close(steps, steps.round(), atol=1e-5, rtol=0)
    assert correction.any() and steps.abs().max() <= 8
    network, _ = load_bundle(tmp_path / "whole")
    assert torch.equal(dict(network.stored())["blocks.1.ffn.router.correction"], correction)


@pytest.mark.parametrize("model", [DEEPSEEK, MIXTRAL], ids=lambda model: model["family"])
def test_the_load_of_experts_is_reported(model, mixing, inputs_for, train, tmp_path) -> None:
    events = []
    recipe = mixing(model)
    train(recipe, inputs_for(recipe), tmp_path / "out", (events.append,))
    loads = [event.value for event in events if event.name == "train/expert_load"]
    worst = [event.value for event in events if event.name == "train/expert_load_max"]
    assert len(loads) == len(worst) == 4
    count = model["experts"]["count"]
    assert all(1 <= mean <= largest <= count for mean, largest in zip(loads, worst, strict=True))


def test_a_compiled_training_is_the_same(mixing, inputs_for, train, tmp_path) -> None:
    losses = {}
    for compiled in (False, True):
        recipe = mixing(MIXTRAL, exec_compile=compiled, duration="2 steps")
        events = []
        train(recipe, inputs_for(recipe), tmp_path / str(compiled), (events.append,))
        losses[compiled] = [event.value for event in events if event.name in ("train/loss", "train/expert_load")]
    assert losses[True] == pytest.approx(losses[False], rel=1e-5) and losses[True]
