"""Stacked Muon is torch's Muon, matrix by matrix."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainwright.model import muon
from trainwright.model.muon import COEFFICIENTS, ITERATIONS, Muon, orthogonalise

SHAPES = ((32, 32), (64, 32), (32, 64), (32, 32), (64, 32), (16, 48))


def matrices(seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@pytest.mark.parametrize("limit", [1 << 24, 2048, 1])
def test_it_takes_torch_s_steps(monkeypatch, limit) -> None:
    """Whatever the stacks; bf16 products may round differently, so directions agree to a few of their last bits."""
    monkeypatch.setattr(muon, "STACK_ELEMENTS", limit)
    ours, theirs = matrices(1), matrices(1)
    first = Muon(ours, lr=0.02, momentum=0.9, weight_decay=0.1)
    second = torch.optim.Muon(theirs, lr=0.02, momentum=0.9, weight_decay=0.1)
    for seed in (2, 3, 4):
        for mine, other, gradient in zip(ours, theirs, matrices(seed), strict=True):
            mine.grad, other.grad = gradient.detach().clone(), gradient.detach().clone()
        first.step()
        second.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=2e-3, rtol=0)
        torch.testing.assert_close(first.state[mine]["momentum_buffer"], second.state[other]["momentum_buffer"])


def test_rows_become_nearly_orthonormal_and_directions_stay() -> None:
    generator = torch.Generator().manual_seed(5)
    wide = torch.randn(3, 24, 96, generator=generator)
    result = orthogonalise(wide.bfloat16()).float()
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(wide, full_matrices=False)
    cosine = torch.nn.functional.cosine_similarity(result.flatten(1), (left @ right).flatten(1))
    assert cosine.min() > 0.97


@pytest.mark.parametrize(("native", "within"), [(True, 3e-2), (False, 1e-5)])
def test_a_processor_without_bf16_products_multiplies_in_fp32(monkeypatch, native: bool, within: float) -> None:
    """Held to the polynomial of the singular values, in fp64, of the same entries in bf16."""
    monkeypatch.setattr(muon, "native_bf16", lambda: native)
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(48, 96, generator=generator)
    (found,) = muon.orthogonal([matrix])
    assert found.dtype is (torch.bfloat16 if native else torch.float32)
    left, values, right = torch.linalg.svd(matrix.bfloat16().double(), full_matrices=False)
    values = values / values.norm()
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        values = a * values + b * values**3 + c * values**5
    expected = left @ values.diag() @ right
    assert float((found.double() - expected).norm() / expected.norm()) < within


def test_entries_are_rounded_alike_whatever_multiplies_them(monkeypatch) -> None:
    """So that ranks may exchange them in bf16, and a layout changes no bit."""
    monkeypatch.setattr(muon, "native_bf16", lambda: False)
    matrix = torch.randn(32, 64, generator=torch.Generator().manual_seed(6))
    (found,), (rounded,) = muon.orthogonal([matrix]), muon.orthogonal([matrix.bfloat16()])
    assert torch.equal(found, rounded)


def test_matrices_without_a_gradient_stay() -> None:
    parameters = matrices(1)
    before = [parameter.detach().clone() for parameter in parameters]
    parameters[0].grad = torch.ones_like(parameters[0])
    Muon(parameters, lr=0.1, momentum=0.9, weight_decay=0.5).step()
    assert not torch.equal(parameters[0], before[0])
    for parameter, old in list(zip(parameters, before, strict=True))[1:]:
        assert torch.equal(parameter, old)


def test_a_closure_computes_gradients_first_and_its_loss_is_returned() -> None:
    parameters, others = matrices(1), matrices(1)

    def loss_of(members):
        def loss() -> float:
            total = sum(parameter.square().sum() for parameter in members)
            total.backward()
            return total.item()

        return loss

    rule = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}
    expected = loss_of(others)()
    Muon(others, **rule).step()
    assert Muon(parameters, **rule).step(loss_of(parameters)) == expected
    assert all(torch.equal(mine, other) for mine, other in zip(parameters, others, strict=True))


def test_only_matrices_are_taken() -> None:
    with pytest.raises(ValueError, match=r"not tensors of shape \(7,\)"):
        Muon([nn.Parameter(torch.ones(7))], lr=0.1, momentum=0.9, weight_decay=0.0)
