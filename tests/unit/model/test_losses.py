from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from trainwright.model.losses import IGNORE, linear_cross_entropy, token_cross_entropy
from trainwright.planner.counts.pieces import LOGITS_CHUNK_BYTES, LOGITS_CHUNK_MIN_TOKENS, chunk_tokens


def inputs(n: int = 150, width: int = 16, vocabulary: int = 50):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, width, generator=generator, requires_grad=True)
    weight = torch.randn(vocabulary, width, generator=generator, requires_grad=True)
    targets = torch.randint(0, vocabulary, (n,), generator=generator)
    targets[::7] = IGNORE
    return hidden, weight, targets


@pytest.mark.parametrize("chunk", ["auto", "whole", 64, 128, 1 << 20])
def test_value_and_gradients_are_torchs(chunk):
    hidden, weight, targets = inputs()
    total, count = linear_cross_entropy(hidden, weight, targets, chunk=chunk)
    (total * 0.37).backward()
    ours = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    reference = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORE, reduction="sum")
    (reference * 0.37).backward()
    torch.testing.assert_close(total, reference)
    for mine, theirs in zip(ours, (hidden.grad, weight.grad), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    assert int(count) == int((targets != IGNORE).sum())


@pytest.mark.parametrize("multiple", [1, 64])
def test_with_a_bias_value_and_gradients_are_torchs(multiple):
    hidden, weight, targets = inputs()
    bias = torch.randn(50, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = []
    for reference in (False, True):
        if reference:
            total = F.cross_entropy(F.linear(hidden, weight, bias), targets, ignore_index=IGNORE, reduction="sum")
        else:
            total, _ = linear_cross_entropy(hidden, weight, targets, bias=bias, chunk=64, multiple=multiple)
        (total * 0.37).backward()
        found.append((total.detach(), hidden.grad, weight.grad, bias.grad))
        hidden.grad = weight.grad = bias.grad = None
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    each = token_cross_entropy(hidden, weight, targets, bias)
    torch.testing.assert_close(each.sum().detach(), found[1][0])


@pytest.mark.parametrize("multiple", [64, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_of_zeros_change_nothing_but_rounding(multiple, dtype):
    hidden, weight, targets = inputs()
    narrow = hidden.detach().to(dtype).requires_grad_()
    found = []
    for each in (1, multiple):
        total, count = linear_cross_entropy(narrow, weight, targets, chunk=64, multiple=each)
        total.backward()
        found.append((total.detach(), narrow.grad, weight.grad))
        assert int(count) == int((targets != IGNORE).sum())
        with torch.no_grad():
            value, _ = linear_cross_entropy(narrow, weight, targets, chunk=64, multiple=each)
        torch.testing.assert_close(value, total.detach())
        narrow.grad = weight.grad = None
    for plain, padded in zip(*found, strict=True):
        assert plain.shape == padded.shape
        torch.testing.assert_close(padded, plain)


def test_the_products_have_rows_of_the_multiple_and_nothing_else_has():
    hidden, weight, targets = inputs()
    seen = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ in ("mm", "addmm"):
                seen.add(max(size for arg in args if isinstance(arg, torch.Tensor) for size in arg.shape if size < 100))
            return func(*args, **(kwargs or {}))

    with Watch():
        linear_cross_entropy(hidden, weight, targets, multiple=64)[0].backward()
    assert seen == {64}, "150 targets, 16 columns, 50 entries"
    assert weight.grad.shape == (50, 16)


def test_without_gradients_the_value_is_the_same():
    hidden, weight, targets = inputs()
    with torch.no_grad():
        value, _ = linear_cross_entropy(hidden, weight, targets)
    assert not value.requires_grad
    torch.testing.assert_close(value, linear_cross_entropy(hidden, weight, targets)[0].detach())


def test_nothing_to_predict_is_zero_without_nan():
    hidden, weight, targets = inputs()
    total, count = linear_cross_entropy(hidden, weight, torch.full_like(targets, IGNORE))
    total.backward()
    assert (total.item(), int(count)) == (0.0, 0)
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    hidden, weight, targets = inputs()
    total, _ = linear_cross_entropy(hidden, weight, targets)
    scaled = total * 0.5
    passes = [torch.autograd.grad(scaled, (hidden, weight), retain_graph=kept) for kept in (True, True, False)]
    for later in passes[1:]:
        assert all(torch.equal(first, again) for first, again in zip(passes[0], later, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_frozen_head_has_no_gradient_and_costs_no_product(dtype):
    found = []
    for frozen in (False, True):
        hidden, weight, targets = inputs()
        hidden = hidden.detach().to(dtype).requires_grad_()
        bias = torch.zeros(50, requires_grad=not frozen)
        with FlopCounterMode(display=False) as counted:
            total, _ = linear_cross_entropy(hidden, weight.requires_grad_(not frozen), targets, bias=bias, chunk=64)
        total.backward()
        assert (weight.grad is None) == (bias.grad is None) == frozen
        found.append((total.detach(), hidden.grad, counted.get_total_flops() / (2 * 150 * 16 * 50)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert (found[0][2], found[1][2]) == (3, 2)


def test_bfloat16_states_give_float32_gradients_of_the_weight():
    hidden, weight, targets = inputs()
    low = hidden.detach().to(torch.bfloat16).requires_grad_()
    total, _ = linear_cross_entropy(low, weight, targets)
    total.backward()
    assert (total.dtype, low.grad.dtype, weight.grad.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    reference = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORE, reduction="sum")
    assert abs(total.item() / reference.item() - 1) < 0.02


@pytest.mark.parametrize("vocabulary", [2, 257, 50_257, 10**9])
def test_chunks_fit_their_bytes(vocabulary):
    tokens = chunk_tokens(vocabulary)
    assert tokens % 64 == 0
    assert tokens == LOGITS_CHUNK_MIN_TOKENS or tokens * vocabulary * 4 <= LOGITS_CHUNK_BYTES
