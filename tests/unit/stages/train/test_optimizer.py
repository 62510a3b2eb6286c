"""Which rule updates which parameter, with which decay; state that goes out and comes back."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.decoder import Decoder
from trainwright.spec.recipe import ModelSection, OptimizerSection
from trainwright.stages.train.optimizer import Optimizers, clip


def make_model() -> Decoder:
    model = Decoder(ModelSection(layers=2, width=32, heads=4).spec(vocabulary=50))
    model.initialise(1)
    return model


def fill_gradients(model: Decoder, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_adamw_is_the_textbook_update_with_decay_on_matrices_only() -> None:
    """First step of Loshchilov and Hutter's rule, written out."""
    model = make_model()
    section = OptimizerSection(name="adamw", lr=0.01, weight_decay=0.1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = Optimizers(model, section)
    fill_gradients(model, 1)
    optimizers.step(0.5)
    for name, parameter in model.named_parameters():
        decay = 0.1 if parameter.ndim == 2 else 0.0
        update = parameter.grad / (parameter.grad.abs() + section.epsilon)
        expected = before[name] * (1 - 0.005 * decay) - 0.005 * update
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=1e-5, msg=name)


def test_muon_moves_block_matrices_by_nearly_orthogonal_steps_and_adamw_the_rest() -> None:
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = Optimizers(model, OptimizerSection(name="muon", lr=0.01, muon_lr=0.02))
    fill_gradients(model, 1)
    optimizers.step(1.0)
    states = dict(optimizers.tensors())
    for name, parameter in model.named_parameters():
        is_block_matrix = name.startswith("blocks.") and parameter.ndim == 2
        assert (f"{name}.momentum_buffer" in states) == is_block_matrix, name
        assert (f"{name}.exp_avg" in states) != is_block_matrix, name
        if is_block_matrix:
            rows, columns = parameter.shape
            step = (before[name] - parameter.detach()) / (0.02 * max(1, rows / columns) ** 0.5)
            values = torch.linalg.svdvals(step)
            assert values.median() > 0.6 and values.max() < 1.3, name


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_state_goes_out_and_comes_back(name) -> None:
    section = OptimizerSection(name=name)
    first, second = make_model(), make_model()
    one = Optimizers(first, section)
    for seed in range(3):
        fill_gradients(first, seed)
        one.step(1.0)
    second.load_state_dict(first.state_dict())
    other = Optimizers(second, section)
    other.load({key: value.clone() for key, value in one.tensors()})
    for model, optimizers in ((first, one), (second, other)):
        fill_gradients(model, 9)
        optimizers.step(1.0)
    for key, parameter in first.named_parameters():
        assert torch.equal(parameter, dict(second.named_parameters())[key]), key


def test_missing_state_is_named() -> None:
    with pytest.raises(KeyError, match="embedding"):
        Optimizers(make_model(), OptimizerSection()).load({})


def test_clipping_scales_all_gradients_by_one_factor() -> None:
    model = make_model()
    fill_gradients(model, 4)
    parameters = list(model.parameters())
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    assert clip(parameters, None).item() == pytest.approx(flat.norm().item(), rel=1e-5)
    assert clip(parameters, 1.0).item() == pytest.approx(flat.norm().item(), rel=1e-5)
    clipped = torch.cat([parameter.grad.flatten() for parameter in parameters])
    torch.testing.assert_close(clipped, flat / flat.norm(), atol=1e-6, rtol=1e-3)


def test_embeddings_have_a_rate_of_their_own() -> None:
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = Optimizers(model, OptimizerSection(name="adamw", lr=0.01, embedding_lr=0.1, weight_decay=0.0))
    fill_gradients(model, 1)
    optimizers.step(1.0)
    for name, parameter in model.named_parameters():
        moved = (before[name] - parameter.detach()).abs().max().item()
        assert moved == pytest.approx(0.1 if name == "embedding" else 0.01, rel=1e-3), name
