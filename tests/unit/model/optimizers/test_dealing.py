"""Every matrix is dealt to one rank, and its rows lie as torch cuts them; what is sent: ``test_sharded_muon``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainwright.model.optimizers.dealing import Deal


def deals(ranks: int, shapes: list[tuple[int, int]], first: int = 0) -> list[Deal]:
    groups: list[Any] = [SimpleNamespace(size=lambda: ranks, rank=lambda rank=rank: rank) for rank in range(ranks)]
    return [Deal(group=group, shapes=shapes, first=first) for group in groups]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("matrices", [1, 2, 7])
def test_every_matrix_is_dealt_once_and_evenly(ranks, first, matrices) -> None:
    first %= ranks
    hands = [deal.of(deal.group.rank()) for deal in deals(ranks, [(4, 4)] * matrices, first)]
    assert sorted(i for hand in hands for i in hand) == list(range(matrices))
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert 0 in hands[first]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", range(1, 12))
def test_rows_lie_as_torch_cuts_them(ranks, rows) -> None:
    (deal, *_) = deals(ranks, [(rows, 3)])
    cut = [tuple(part.shape) for part in torch.zeros(rows, 3).chunk(ranks)]
    assert [deal._rows(0, rank) for rank in range(ranks)] == cut + [(0, 3)] * (ranks - len(cut))
