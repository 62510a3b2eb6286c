"""Losses by hand, and gradients through any function of tokens' costs as torch finds them over whole logits."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fixtures.tiny_models import spec
from trainwright.model.build import build_network
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.preferences.losses import by_answer, dpo, loss_of_tokens, orpo


def test_dpo_by_hand():
    """beta 0.5 and ratios 2 and -1 are a margin of 1.5: log(1 + exp(-1.5)) = 0.2014132780, the other way 1.7014."""
    ratios = torch.tensor([[2.0, -1.0], [0.0, 0.0]], dtype=torch.float64)
    plain = dpo(ratios, beta=0.5)
    assert plain.tolist() == pytest.approx([0.2014132780, math.log(2)], rel=1e-9)
    smooth = dpo(ratios, beta=0.5, label_smoothing=0.25)
    assert smooth.tolist() == pytest.approx([0.75 * 0.2014132780 + 0.25 * 1.7014132780, math.log(2)], rel=1e-9)


def test_orpo_by_hand():
    """Token probabilities 0.8 and 0.5 have odds of 4 and 1: a ratio of 4, whose sigmoid of the logarithm is 0.8."""
    means = torch.tensor([[math.log(0.8), math.log(0.5)]], dtype=torch.float64)
    assert orpo(means, beta=0.1).item() == pytest.approx(-math.log(0.8) - 0.1 * math.log(0.8), rel=1e-12)


def test_an_answer_that_is_certain_has_a_finite_loss_and_gradient():
    means = torch.zeros(1, 2, requires_grad=True)
    orpo(means, beta=0.1).sum().backward()
    assert torch.isfinite(means.grad).all()


@pytest.mark.parametrize("tokens", [7, 8])
def test_sums_are_by_answer(tokens):
    values = torch.arange(1.0, tokens + 1).expand(2, -1)
    documents = torch.tensor([[0, 0, 1, 2, 3, 3, 4, 4][:tokens], [0, 1, 1, 2, 2, 2, 2, 2][:tokens]])
    sums = by_answer(values, documents)
    assert sums.shape == (2, tokens // 2 + 1, 2)
    assert sums[0, :2].tolist() == [[3, 3], [4, 11]]
    assert sums[1, 0].tolist() == [1, 5]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_gradients_are_those_of_whole_logits(family):
    network = build_network(spec(family), dtype=torch.float64)
    network.initialise(1)
    network.double()
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, network.spec.vocabulary, (3, 9), generator=generator)
    targets = torch.randint(1, network.spec.vocabulary, (27,), generator=generator)
    targets[::4] = IGNORE

    def judge(costs):
        return (costs.view(3, 9).sum(1) - 20).square().sum() + costs[1].exp()

    found = []
    for ours in (True, False):
        hidden = network(tokens).flatten(0, 1)
        if ours:
            loss = loss_of_tokens(network, hidden, targets, judge)
        else:
            loss = judge(F.cross_entropy(network.logits(hidden), targets, ignore_index=IGNORE, reduction="none"))
        loss.backward()
        found.append([loss.detach(), *(parameter.grad.clone() for parameter in network.parameters())])
        network.zero_grad()
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    with torch.no_grad():
        hidden = network(tokens).flatten(0, 1)
        torch.testing.assert_close(loss_of_tokens(network, hidden, targets, judge), found[1][0])
