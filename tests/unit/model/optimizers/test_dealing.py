"""Every matrix is dealt to one rank, and its rows lie as torch cuts them; what is sent: ``test_sharded_muon``."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.optimizers.dealing import hand, rows_of


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("matrices", [1, 2, 7])
def test_every_matrix_is_dealt_once_and_evenly(ranks, first, matrices) -> None:
    first %= ranks
    hands = [hand(rank, ranks, first=first, matrices=matrices) for rank in range(ranks)]
    assert sorted(i for each in hands for i in each) == list(range(matrices))
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert 0 in hands[first]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", range(1, 12))
def test_rows_lie_as_torch_cuts_them(ranks, rows) -> None:
    cut = [len(part) for part in torch.zeros(rows, 3).chunk(ranks)]
    assert [rows_of(rank, ranks, rows=rows) for rank in range(ranks)] == cut + [0] * (ranks - len(cut))
