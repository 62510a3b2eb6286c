"""Memory counted against tensors whose sizes are known."""

from __future__ import annotations

import sys

import pytest
import torch

from trainwright.runtime.memory import (
    LiveBytes,
    SavedBytes,
    measured_use,
    peak_resident_bytes,
    reset_peak,
    resident_bytes,
    tensor_bytes,
)

CPU = torch.device("cpu")
MIB = 2**20


def test_views_share_their_storage() -> None:
    base = torch.zeros(1000)
    assert tensor_bytes([base, base[:10], base.view(10, 100)]) == 4000
    assert tensor_bytes([base, torch.zeros(5, dtype=torch.float64)]) == 4040


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_the_peak_sees_what_is_gone_and_can_be_forgotten() -> None:
    reset_peak(CPU)
    before = resident_bytes()
    block = torch.ones(64 * MIB)
    del block
    assert peak_resident_bytes() - before > 200 * MIB
    reset_peak(CPU)
    assert peak_resident_bytes() - before < 100 * MIB


def test_saved_bytes_are_those_that_backward_needs() -> None:
    """Of y = sin(x w): x for the product's gradient and x w for the cosine; w is a parameter."""
    x, w = torch.randn(64, 32), torch.nn.Parameter(torch.randn(32, 16))
    saved = SavedBytes([w])
    with saved.counting():
        product = x @ w
        y = product.sin()
    assert saved.total_bytes == (64 * 32 + 64 * 16) * 4
    y.sum().backward()


def test_live_bytes_peak_while_temporaries_live() -> None:
    with LiveBytes() as live:
        a = torch.ones(MIB)
        b = a + a
        del b
        c = a * 2
        del c, a
    assert live.peak_bytes == 8 * MIB


def test_classes_sum_to_the_peak() -> None:
    reset_peak(CPU)
    tensor = torch.ones(8 * MIB)
    use = measured_use(device=CPU, weights=tensor_bytes([tensor]), gradients=0, optimizer=0, activations=0, logits=0)
    assert use.weights == 32 * MIB
    assert use.total_bytes == pytest.approx(peak_resident_bytes(), rel=0.01)


@pytest.mark.cuda
def test_on_cuda_the_peak_is_the_allocator_s() -> None:
    device = torch.device("cuda")
    reset_peak(device)
    tensor = torch.ones(8 * MIB, device=device)
    use = measured_use(device=device, weights=tensor_bytes([tensor]), gradients=0, optimizer=0, activations=0, logits=0)
    assert use.total_bytes - use.reserved_unused >= 32 * MIB
