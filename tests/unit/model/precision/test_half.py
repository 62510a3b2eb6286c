"""The loss's gradients in fp16 against fp32's."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.losses import linear_cross_entropy


@pytest.mark.parametrize(("rows", "vocabulary"), [(300, 5000), (8192, 40)])
def test_fp16_keeps_small_probabilities_and_sums_over_many_equal_targets(rows, vocabulary):
    """Most gradients of logits are below what fp16 has all bits for; a column of the head's is beyond its range."""
    generator = torch.Generator().manual_seed(0)
    hidden = 16 * torch.randn(rows, 16, generator=generator).abs()
    weight = 0.02 * torch.randn(vocabulary, 16, generator=generator)
    targets = torch.full((rows,), 7)
    found = []
    for dtype in (torch.float32, torch.float16):
        states, head = hidden.to(dtype, copy=True).requires_grad_(), weight.clone().requires_grad_()
        total, count = linear_cross_entropy(states, head, targets, chunk="whole")
        (total / count * 1024).backward()
        found.append((total.detach(), states.grad.float(), head.grad))
    for truth, half in zip(*found, strict=True):
        assert float((half - truth).norm() / truth.norm()) < 2e-3
    assert rows < 8192 or float(found[0][2].abs().max()) * rows / 1024 > 65504
