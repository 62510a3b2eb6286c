"""What ``train.loss`` adds: to the loss of a network in training alone, and to gradients as autograd has it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.regularisation.terms import add_terms, penalise
from trainwright.spec.sections.updates.loss import LossSection

SMOOTHED = LossSection(label_smoothing=0.2, z_weight=0.01)


@pytest.mark.parametrize(("family", "fields"), [("llama", {}), ("gpt2", {"classes": 5}), ("bert", {})])
def test_a_network_in_training_has_the_terms_and_one_that_is_measured_has_not(family, fields) -> None:
    network = build_network(spec(family, **fields), dtype=torch.float64).double()
    network.initialise(1)
    said = add_terms(network, SMOOTHED)
    assert said == [
        "losses of training are with label_smoothing=0.2, z_weight=0.01; those of validation are the task's alone"
    ]
    outputs = network.spec.classes or network.spec.vocabulary
    hidden = torch.randn(9, network.spec.width, dtype=torch.float64)
    targets = torch.arange(9) % outputs
    targets[3] = IGNORE
    logits = network.logits(hidden)
    z_loss = 0.01 * logits[targets != IGNORE].logsumexp(dim=-1).square().sum()
    smoothed = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=0.2)
    plain = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(network.train().head_loss(hidden, targets)[0], smoothed + z_loss)
    torch.testing.assert_close(network.eval().head_loss(hidden, targets)[0], plain)
    apart = network.train().token_losses(hidden, targets).sum().double()  # in fp32
    torch.testing.assert_close(apart, plain, rtol=1e-6, atol=0)


def test_penalties_are_the_gradients_of_their_sums() -> None:
    network = build_network(spec("gpt2"), dtype=torch.float64).double()
    network.initialise(1)
    generator = torch.Generator().manual_seed(2)
    matrices = {name: each for name, each in network.named_parameters() if each.ndim == 2}
    with torch.no_grad():
        network.embedding[3, 2] = 0.0
    cost = sum(1e-3 * each.abs().sum() + 0.5e-2 * each.square().sum() for each in matrices.values())
    truth = dict(zip(matrices, torch.autograd.grad(cost, list(matrices.values())), strict=True))
    before = {}
    for name, each in network.named_parameters():
        before[name] = torch.randn(each.shape, generator=generator, dtype=each.dtype)
        each.grad = before[name].clone()
    del before["blocks.0.ffn.up.weight"]
    network.get_parameter("blocks.0.ffn.up.weight").grad = None
    penalise(network.trained(), l1_weight=1e-3, l2_weight=1e-2)
    assert len(matrices) < len(network.trained())
    for name, each in network.named_parameters():
        expected = before.get(name, 0) + truth.get(name, 0)
        torch.testing.assert_close(each.grad, expected, rtol=1e-14, atol=1e-16)


def test_terms_that_are_zero_cost_nothing() -> None:
    network = build_network(spec("llama"))
    add_terms(network, LossSection(l1_weight=1e-3))
    assert network.chunk_loss is None
    assert network.penalties is not None
    add_terms(other := build_network(spec("llama")), SMOOTHED)
    assert other.penalties is None
