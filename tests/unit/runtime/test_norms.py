"""Norm and clipping of one process are torch's; those of several are held to it by ``tests/parallel``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from trainwright.runtime.mesh import ALONE
from trainwright.runtime.norms import clip, global_norm


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.zeros(2))]
    for parameter in made[:2]:
        parameter.grad = torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("largest", [None, 0.1, 100.0])
def test_alone_it_is_torchs(largest: float | None) -> None:
    ours, theirs = parameters(), parameters()
    norm = clip(ours, largest, ALONE)
    truth = torch.nn.utils.clip_grad_norm_(theirs, torch.inf if largest is None else largest)
    torch.testing.assert_close(norm, truth)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)


def test_no_gradient_has_no_norm() -> None:
    nothing: list[Tensor] = []
    assert float(global_norm(nothing, ALONE)) == 0.0


def test_a_gradient_that_is_not_finite_says_so() -> None:
    (parameter, *_) = parameters()
    assert parameter.grad is not None
    parameter.grad[0, 0] = torch.nan
    assert clip([parameter], 1.0, ALONE).isnan()


def test_what_another_stage_counts_is_scaled_and_not_counted() -> None:
    ours, theirs = parameters(), parameters()
    norm = clip(ours, 0.1, ALONE, again=[ours[1]])
    assert theirs[0].grad is not None
    torch.testing.assert_close(norm, theirs[0].grad.norm())
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad * 0.1 / (norm + 1e-6))
