"""Label smoothing and z-loss against torch's cross-entropy and the formula over whole logits."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from trainwright.model.losses import IGNORE, linear_cross_entropy
from trainwright.model.parallel import vocabulary
from trainwright.model.regularisation.tokens import chunk_loss

ROWS, WIDTH, ENTRIES = 11, 6, 17


def drawn(dtype=torch.float64):
    """Hidden states, a head with a bias, and targets of which two do not count."""
    generator = torch.Generator().manual_seed(2)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in ((ROWS, WIDTH), (ENTRIES, WIDTH), (ENTRIES,))
    )
    targets = torch.randint(ENTRIES, (ROWS,), generator=generator)
    targets[2] = targets[9] = IGNORE
    return hidden, weight, bias, targets


def truth(hidden, weight, bias, targets, *, label_smoothing, z_weight, cap):
    """Torch's smoothed cross-entropy over whole logits, and PaLM's term, of the targets that count."""
    logits = hidden @ weight.T + bias
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    smoothed = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
    return smoothed + z_weight * logits[targets != IGNORE].logsumexp(dim=-1).square().sum()


@pytest.mark.parametrize(("label_smoothing", "z_weight"), [(0.1, 0.0), (0.0, 0.3), (0.4, 0.05)])
@pytest.mark.parametrize(("chunk", "multiple", "cap"), [("whole", 1, None), (4, 8, 1.5)])
@pytest.mark.parametrize("shared", [False, True])
def test_the_loss_and_its_gradients_are_those_of_whole_logits(
    label_smoothing, z_weight, chunk, multiple, cap, shared, tmp_path
) -> None:
    hidden, weight, bias, targets = drawn()
    terms = {"label_smoothing": label_smoothing, "z_weight": z_weight}
    one = partial(chunk_loss, vocabulary=ENTRIES, **terms)
    how = {"bias": bias, "chunk": chunk, "multiple": multiple, "cap": cap, "entries": ENTRIES, "chunk_loss": one}
    if shared:  # by one rank; several are in tests/parallel
        dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
        try:
            group = dist.group.WORLD.group_name
            total, count = vocabulary.head_loss(hidden, weight, targets, first=0, group=group, **how)
        finally:
            dist.destroy_process_group()
    else:
        total, count = linear_cross_entropy(hidden, weight, targets, **how)
    expected = truth(hidden, weight, bias, targets, **terms, cap=cap)
    assert int(count) == ROWS - 2
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)
    inputs = (hidden, weight, bias)
    for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in (total, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_large_logits_do_not_overflow() -> None:
    hidden, weight, bias, targets = (each if each.dtype is torch.int64 else each.detach() for each in drawn())
    big = (hidden * 200).float()
    one = partial(chunk_loss, vocabulary=ENTRIES, label_smoothing=0.1, z_weight=1e-4)
    total, _ = linear_cross_entropy(big, weight.float(), targets, bias=bias.float(), chunk_loss=one)
    expected = truth(big.double(), weight, bias, targets, label_smoothing=0.1, z_weight=1e-4, cap=None)
    torch.testing.assert_close(total.double(), expected, rtol=1e-6, atol=0)


def test_hidden_states_of_16_bits_have_gradients_of_16_bits() -> None:
    hidden, weight, bias, targets = drawn()
    low = hidden.detach().bfloat16().requires_grad_()
    one = partial(chunk_loss, vocabulary=ENTRIES, label_smoothing=0.1, z_weight=0.1)
    total, _ = linear_cross_entropy(low, weight.float(), targets, bias=bias.float(), chunk_loss=one)
    expected = truth(hidden, weight, bias, targets, label_smoothing=0.1, z_weight=0.1, cap=None)
    (ours,), (theirs,) = torch.autograd.grad(total, low), torch.autograd.grad(expected, hidden)
    assert ours.dtype is torch.bfloat16
    assert float((ours.double() - theirs).norm() / theirs.norm()) < 2e-2
