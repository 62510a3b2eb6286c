"""Rows that are looked up, and the loss of a rank that has the whole vocabulary; several ranks: ``tests/parallel``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from trainwright.model.losses import IGNORE
from trainwright.model.parallel.vocabulary import head_loss, looked_up, place_of, token_losses


@pytest.fixture
def group(tmp_path) -> Iterator[str]:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


def test_a_token_has_a_row_on_one_rank() -> None:
    index, mine = place_of(torch.tensor([0, 4, 5, 9, 10, IGNORE]), 5, 5)
    assert mine.tolist() == [False, False, True, True, False, False]
    assert index.tolist() == [0, 0, 0, 4, 0, 0]


def test_what_ranks_look_up_sums_to_the_embedding() -> None:
    table, tokens = torch.randn(11, 3), torch.tensor([[0, 4, 5, 10], [7, 7, 1, 3]])
    parts = [looked_up(tokens, table[:4], 0), looked_up(tokens, table[4:], 4)]
    assert torch.equal(parts[0] + parts[1], F.embedding(tokens, table))


@pytest.mark.parametrize(("chunk", "multiple"), [("whole", 1), (4, 1), (4, 8)])
def test_the_whole_vocabulary_gives_torchs_loss_and_gradients(group: str, chunk, multiple) -> None:
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(17, 6, requires_grad=True)
    targets = torch.randint(17, (10,))
    targets[2] = targets[9] = IGNORE
    total, count = head_loss(hidden, weight, targets, first=0, group=group, chunk=chunk, entries=17, multiple=multiple)
    truth = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORE, reduction="sum")
    assert int(count) == 8
    torch.testing.assert_close(total, truth)
    for ours, theirs in zip(*(torch.autograd.grad(loss, (hidden, weight)) for loss in (total, truth)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_each_target_has_a_loss(group: str) -> None:
    hidden, weight, targets = torch.randn(4, 6), torch.randn(17, 6), torch.tensor([3, IGNORE, 16, 0])
    truth = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORE, reduction="none")
    torch.testing.assert_close(token_losses(hidden, weight, targets, first=0, group=group), truth)
