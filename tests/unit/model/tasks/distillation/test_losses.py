"""The distillation loss is what its formula gives on full logits, and by hand; so are its gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from trainwright.model.losses import IGNORE, Head, linear_cross_entropy
from trainwright.model.tasks.distillation.losses import Lesson

ROWS, WIDTH, TAUGHT, VOCABULARY = 11, 5, 7, 13


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def lesson_of(targets, *, temperature: float, alpha: float, cap: float | None = None) -> Lesson:
    head = Head(drawn(VOCABULARY, TAUGHT, seed=3), VOCABULARY, drawn(VOCABULARY, seed=4), cap)
    taught = drawn(len(targets), TAUGHT, seed=5)
    return Lesson(taught=taught, head=head, targets=targets, temperature=temperature, alpha=alpha)


def some_targets() -> torch.Tensor:
    targets = torch.randint(0, VOCABULARY, (ROWS,), generator=torch.Generator().manual_seed(6))
    targets[[0, 4, 10]] = IGNORE
    return targets


def test_a_token_worked_out_by_hand() -> None:
    """Logits (ln 3, 0) of the student and (0, 0) of the teacher, T = 1.

    The cross-entropy of entry 0 is ln 4/3, and KL(1/2, 1/2 || 3/4, 1/4) = (ln(2/3) + ln 2) / 2 = ln(4/3) / 2.
    """
    hidden = torch.tensor([[math.log(3.0)]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64, requires_grad=True)
    teacher = Head(torch.zeros(2, 1, dtype=torch.float64), 2)
    taught, targets = torch.ones(1, 1, dtype=torch.float64), torch.tensor([0])
    lesson = Lesson(taught=taught, head=teacher, targets=targets, temperature=1.0, alpha=0.25)
    loss, count = linear_cross_entropy(hidden, weight, lesson.rows, chunk_loss=lesson)
    loss.backward()
    assert int(count) == 1
    assert float(lesson.cross_entropy) == pytest.approx(math.log(4 / 3))
    assert float(lesson.divergence) == pytest.approx(math.log(4 / 3) / 2)
    assert float(loss.detach()) == pytest.approx(0.25 * math.log(4 / 3) / 2 + 0.75 * math.log(4 / 3))
    # Of the first logit: 0.25 (3/4 - 1/2) + 0.75 (3/4 - 1) = -1/8; the hidden state moves that one alone.
    assert float(hidden.grad) == pytest.approx(-1 / 8)


@pytest.mark.parametrize(
    ("temperature", "alpha", "cap", "chunk"), [(1.0, 0.5, None, 4), (3.0, 0.7, 2.0, 3), (0.5, 1.0, None, 64)]
)
def test_loss_and_gradients_are_those_of_torch_on_full_logits(temperature, alpha, cap, chunk) -> None:
    targets = some_targets()
    lesson = lesson_of(targets, temperature=temperature, alpha=alpha, cap=cap)
    parts = [drawn(ROWS, WIDTH, seed=1), drawn(VOCABULARY, WIDTH, seed=2), drawn(VOCABULARY, seed=7)]
    hidden, weight, bias = (part.clone().requires_grad_() for part in parts)
    loss, count = linear_cross_entropy(
        hidden, weight, lesson.rows, bias=bias, chunk=chunk, chunk_loss=lesson, multiple=8, cap=cap
    )
    (3 * loss).backward()

    plain = [part.clone().requires_grad_() for part in parts]
    logits, theirs = plain[0] @ plain[1].T + plain[2], lesson.head.logits(lesson.taught)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    there = targets != IGNORE
    own = F.log_softmax(logits[there] / temperature, dim=-1)
    divergence = F.kl_div(own, F.softmax(theirs[there] / temperature, dim=-1), reduction="sum")
    cross_entropy = F.cross_entropy(logits[there], targets[there], reduction="sum")
    truth = alpha * temperature**2 * divergence + (1 - alpha) * cross_entropy
    (3 * truth).backward()

    assert int(count) == int(there.sum())
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(torch.as_tensor(lesson.divergence), divergence)
    torch.testing.assert_close(torch.as_tensor(lesson.cross_entropy), cross_entropy)
    for ours, other in zip((hidden, weight, bias), plain, strict=True):
        torch.testing.assert_close(ours.grad, other.grad)


def test_a_student_that_says_what_its_teacher_says_has_no_divergence() -> None:
    targets = some_targets()
    lesson = lesson_of(targets, temperature=2.0, alpha=1.0)
    hidden = lesson.taught.clone().requires_grad_()
    loss, _ = linear_cross_entropy(
        hidden, lesson.head.weight, lesson.rows, bias=lesson.head.bias, chunk=4, chunk_loss=lesson
    )
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    assert float(hidden.grad.abs().max()) == pytest.approx(0, abs=1e-12)


def test_targets_that_do_not_count_alone_cost_nothing() -> None:
    lesson = lesson_of(torch.full((ROWS,), IGNORE), temperature=2.0, alpha=0.5)
    hidden = drawn(ROWS, WIDTH, seed=1).requires_grad_()
    loss, count = linear_cross_entropy(hidden, drawn(VOCABULARY, WIDTH, seed=2), lesson.rows, chunk_loss=lesson)
    loss.backward()
    assert (float(loss.detach()), int(count)) == (0, 0)
    assert not hidden.grad.any()
