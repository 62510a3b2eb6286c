"""Training with dropout: one gradient whatever the micro batches, the same bits after a kill, the plan's bytes."""

from __future__ import annotations

import json

import pytest
import torch

from trainwright.model.build import build_network
from trainwright.model.dropout import sample_keys
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.next_token import NextToken
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.updates.optimizer import AdamWSection
from trainwright.stages.train.batches.keyed import KeyedBatches
from trainwright.stages.train.optimizer import Optimizers
from trainwright.stages.train.step import TrainingStep

RATES = {"residual": 0.1, "embedding": 0.2, "attention": 0.3, "depth": 0.4}


def gradients(family, *, micro_batch, recompute="none", end_of_text=None, step=4):
    section = ModelSection(family=family, layers=2, width=32, heads=4, context_tokens=24, dropout=RATES)
    network = build_network(section.spec(vocabulary=61), dtype=torch.float64, recompute=recompute)
    network.initialise(5)
    network.double()
    clock = PhaseClock(torch.device("cpu"))
    clock.start()
    task, optimizers = NextToken(sequence_tokens=16, end_of_text=end_of_text), Optimizers(network, AdamWSection())
    made = TrainingStep(task, network, optimizers, clock, micro_batch=micro_batch, clip_norm=None, compiled=False)
    tokens = torch.randint(0, 61, (7, 17), generator=torch.Generator().manual_seed(1))
    tokens[2, 5:] = IGNORE
    made.gradient({"tokens": tokens, "samples": sample_keys(3, step, range(7))})
    return {name: parameter.grad for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("end_of_text", [None, 0])
def test_any_micro_batches_have_one_gradient(family, end_of_text) -> None:
    whole = gradients(family, micro_batch=7, end_of_text=end_of_text)
    floor = 1e-7 * torch.stack([gradient.norm() for gradient in whole.values()]).norm()  # biases of keys have none
    for micro_batch in (1, 3, 4):
        parts = gradients(family, micro_batch=micro_batch, end_of_text=end_of_text)
        for name, gradient in whole.items():
            assert (parts[name] - gradient).norm() <= 1e-12 * max(gradient.norm(), floor), name
    other = gradients(family, micro_batch=7, end_of_text=end_of_text, step=5)
    assert not torch.allclose(other["embedding"], whole["embedding"], rtol=0.1)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_recomputation_gives_the_same_bits(family) -> None:
    kept, *again = (gradients(family, micro_batch=4, recompute=how) for how in ("none", "selective", "full"))
    for name, gradient in kept.items():
        assert all(torch.equal(gradient, each[name]) for each in again), name


@pytest.fixture
def dropping(make_recipe):
    """A recipe with all rates, and these ``train`` keys."""

    def make(rates=RATES, **train) -> Recipe:
        plain = make_recipe(family="gpt2", **train).model_dump(exclude_unset=True)
        return Recipe.model_validate(plain | {"model": plain["model"] | {"dropout": rates}})

    return make


def test_a_killed_run_goes_on_to_the_same_bits(dropping, inputs_for, train, tmp_path) -> None:
    recipe = dropping(exec_checkpoint_every=1e-9)

    def ended(name, *listeners) -> dict[str, bytes]:
        train(recipe, inputs_for(recipe), tmp_path / name, listeners)
        return {each: (tmp_path / name / each).read_bytes() for each in ("model.safetensors", "model.json")}

    def kill(event) -> None:
        if event.kind == "progress" and event.name == "train" and event.value == 5:
            raise SystemExit(137)

    with pytest.raises(SystemExit):
        ended("killed", kill)
    whole = ended("whole")
    assert ended("killed") == whole
    assert json.loads(whole["model.json"])["dropout"] == RATES
    plain = dropping({})
    train(plain, inputs_for(plain), tmp_path / "plain")
    assert (tmp_path / "plain" / "model.safetensors").read_bytes() != whole["model.safetensors"]


def test_the_order_of_data_is_the_same_with_dropout(
    dropping, dataset, monkeypatch, inputs_for, train, tmp_path
) -> None:
    """Only the keys are added to batches, and only where something is dropped."""
    seen: dict[bool, list[dict[str, torch.Tensor]]] = {}
    original = TrainingStep.__call__
    for rates in (RATES, {}):
        batches = seen[bool(rates)] = []

        def recorded(self, batch, share, into=batches):
            into.append(dict(batch))
            return original(self, batch, share)

        monkeypatch.setattr(TrainingStep, "__call__", recorded)
        recipe = dropping(rates)
        train(recipe, inputs_for(recipe), tmp_path / str(bool(rates)))
    assert {frozenset(batch) for batch in seen[False]} == {frozenset({"tokens"})}
    for step, (with_keys, plain) in enumerate(zip(seen[True], seen[False], strict=True)):
        assert torch.equal(with_keys["tokens"], plain["tokens"])
        assert torch.equal(with_keys["samples"], sample_keys(7, step, range(4)))


def test_keyed_batches_are_loaded_by_name() -> None:
    from trainwright.core.registry import load
    from trainwright.stages.train.trainer import KEYED

    assert load(KEYED, kind="dropout") is KeyedBatches
