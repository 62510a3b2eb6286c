from __future__ import annotations

import torch

from trainwright.model.experts.balance import Share, loads, moved_bias, with_loss


def test_a_loss_joins_the_backward_pass_of_what_it_goes_with():
    x = torch.ones(3, requires_grad=True)
    losses = torch.tensor([2.0, 5.0], requires_grad=True)
    y = with_loss(x, losses, Share(torch.tensor(0.25)))
    assert torch.equal(y, x)
    (7 * y.sum()).backward()
    assert x.grad.tolist() == [7.0, 7.0, 7.0]
    assert losses.grad.tolist() == [0.25, 0.25]


def test_loads_are_counts():
    chosen = torch.tensor([[[0, 2], [2, 3]], [[3, 1], [3, 0]]])
    assert loads(chosen, 4).tolist() == [[1, 0, 2, 1], [1, 1, 0, 2]]


def test_biases_rise_below_the_mean_load_and_fall_above_it():
    """Algorithm 1 of arXiv 2408.15664; at the mean they stay."""
    moved = moved_bias(torch.zeros(3), torch.tensor([4, 1, 7]), 0.5)
    assert moved.tolist() == [0.0, 0.5, -0.5]
