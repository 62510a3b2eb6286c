"""Pooling and loss against what they are by hand, text by text and pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from trainwright.model.tasks.embeddings.contrast import info_nce, pooled

DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 2, 2]])


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_text_s_vector_is_of_its_own_tokens_and_has_length_1(pooling) -> None:
    hidden = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = pooled(hidden, DOCUMENTS, texts=2, pooling=pooling)
    assert made.shape == (2, 2, 5)
    for row in range(2):
        for text in range(2):
            own = hidden[row][DOCUMENTS[row] == text]
            vector = {"mean": own.mean(dim=0), "cls": own[0], "last": own[-1]}[pooling]
            torch.testing.assert_close(made[row, text], vector / vector.square().sum().sqrt())


def drawn(groups, group, texts, width=4):
    made = torch.randn(groups, group, texts, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    keys = torch.arange(groups * group * texts).reshape(groups, group, texts)
    return torch.nn.functional.normalize(made, dim=-1), keys


@pytest.mark.parametrize("texts", [2, 3, 4])
def test_the_loss_is_that_of_each_anchor_among_the_texts_of_its_group(texts) -> None:
    made, keys = drawn(2, 3, texts)
    losses = info_nce(made, keys, temperature=0.2)
    for group in range(2):
        for row in range(3):
            anchor, positive = made[group, row, 0], made[group, row, 1]
            others = [made[group, other, text] for other in range(3) for text in range(1, texts)]
            total = sum(math.exp(float(anchor @ other) / 0.2) for other in others)
            wanted = -math.log(math.exp(float(anchor @ positive) / 0.2) / total)
            assert losses[group, row].item() == pytest.approx(wanted, rel=1e-12)


def test_the_same_text_as_the_positive_is_no_negative_of_it() -> None:
    made, keys = drawn(1, 3, 2)
    made[0, 2, 1], keys[0, 2, 1] = made[0, 0, 1], keys[0, 0, 1]
    losses = info_nce(made, keys, temperature=0.5)[0]
    for row, others in ((0, (0, 1)), (1, (0, 1, 2)), (2, (1, 2))):
        scores = torch.stack([made[0, row, 0] @ made[0, other, 1] / 0.5 for other in others])
        own = made[0, row, 0] @ made[0, row, 1] / 0.5
        assert losses[row].item() == pytest.approx(float(scores.logsumexp(0) - own), rel=1e-12)


def test_no_pair_costs_nothing() -> None:
    made, keys = drawn(1, 2, 2)
    assert info_nce(made[:0], keys[:0], temperature=0.1).sum().item() == 0
