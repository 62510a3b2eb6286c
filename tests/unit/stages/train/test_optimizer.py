"""Which rule updates which parameter, with which decay; state that goes out and comes back."""

from __future__ import annotations

import sys

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Decoder
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import AdamWSection, MuonSection, OptimizerSection
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
    section = AdamWSection(lr=0.01, weight_decay=0.1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = Optimizers(model, section)
    fill_gradients(model, 1)
    optimizers.step(0.5)
    for name, parameter in model.named_parameters():
        decay = 0.1 if parameter.ndim == 2 else 0.0
        update = parameter.grad / (parameter.grad.abs() + section.epsilon)
        expected = before[name] * (1 - 0.005 * decay) - 0.005 * update
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("section", [AdamWSection(lr=0.01), MuonSection(lr=0.01)], ids=["adamw", "muon"])
@pytest.mark.parametrize("kernel", ["foreach", "loop"])
def test_every_kernel_makes_the_same_update(section, kernel) -> None:
    models = [make_model(), make_model()]
    for model, each in zip(models, ("fused", kernel), strict=True):
        optimizers = Optimizers(model, section, each)
        adamw = [group for member in optimizers.members for group in member.param_groups if "fused" in group]
        assert {(bool(group["fused"]), bool(group["foreach"])) for group in adamw} == {
            (each == "fused", each == "foreach")
        }
        for step in range(3):
            fill_gradients(model, step)
            optimizers.step(1.0)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_muon_moves_block_matrices_by_nearly_orthogonal_steps_and_adamw_the_rest() -> None:
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = Optimizers(model, MuonSection(lr=0.01, muon_lr=0.02))
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


@pytest.mark.parametrize(
    "section",
    [
        AdamWSection(lr=0.01),
        AdamWSection(lr=0.01, embedding_lr=0.3),
        MuonSection(lr=0.01, embedding_lr=0.3, muon_lr=0.02),
    ],
)
def test_the_reported_rates_are_those_that_the_parameters_bear(section) -> None:
    optimizers = Optimizers(make_model(), section)
    used = {group["peak_lr"] for optimizer in optimizers.members for group in optimizer.param_groups}
    assert set(optimizers.peak_rates.values()) == used
    assert all(hasattr(section, name.removeprefix("train/")) for name in optimizers.peak_rates)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_state_goes_out_and_comes_back(name) -> None:
    section = TrainSection(optimizer={"name": name}).optimizer
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


@pytest.mark.parametrize(("kernel", "there"), [("fused", "meta"), ("foreach", "cpu")])
def test_updates_are_counted_where_torch_counts_them(kernel, there) -> None:
    """A checkpoint is read on the host, and torch counts a fused kernel's updates on the parameter's device."""
    first, second = make_model(), make_model().to("meta")  # of other devices the one that every machine has
    one, other = Optimizers(first, AdamWSection(), kernel), Optimizers(second, AdamWSection(), "foreach")
    fill_gradients(first, 1)
    one.step(1.0)
    for group in (group for optimizer in other.members for group in optimizer.param_groups):
        group["fused"] = kernel == "fused"  # which torch refuses to begin with there
    other.load({name: tensor.clone() for name, tensor in one.tensors()})
    counts = {tensor.device.type for name, tensor in other.tensors() if name.endswith(".step")}
    assert counts == {there}
    moments = {tensor.device.type for name, tensor in other.tensors() if name.endswith(".exp_avg")}
    assert moments == {"meta"}


def test_missing_state_is_named() -> None:
    model = make_model()
    optimizers = Optimizers(model, AdamWSection())
    fill_gradients(model, 1)
    optimizers.step(1.0)
    tensors = {name: tensor for name, tensor in optimizers.tensors() if not name.startswith("embedding.")}
    with pytest.raises(KeyError, match="embedding"):
        optimizers.load(tensors)


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
    optimizers = Optimizers(model, AdamWSection(lr=0.01, embedding_lr=0.1, weight_decay=0.0))
    fill_gradients(model, 1)
    optimizers.step(1.0)
    for name, parameter in model.named_parameters():
        moved = (before[name] - parameter.detach()).abs().max().item()
        assert moved == pytest.approx(0.1 if name == "embedding" else 0.01, rel=1e-3), name


def nothing(network, section):
    """A plug-in that forgets to return its optimizers."""


def failing(network, section):
    raise KeyError("betas")


def foreign(network, section):
    return [torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nothing", "failed .seen TypeError: 'NoneType' object is not iterable"),
        ("failing", "failed .seen KeyError: 'betas'"),
        ("foreign", "updates another tensor too"),
    ],
)
def test_a_plug_in_that_fails_is_one_line_under_its_key(monkeypatch, name, what) -> None:
    monkeypatch.setitem(sys.modules, "newcomer", sys.modules[__name__])
    with pytest.raises(RecipeError, match=what) as caught:
        Optimizers(make_model(), OptimizerSection(name=f"newcomer:{name}"))
    assert caught.value.where == "train.optimizer.name"
