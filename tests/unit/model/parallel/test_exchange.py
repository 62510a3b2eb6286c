"""Which tokens a rank has, and gradients of what is exchanged, where one rank is all there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from trainwright.model.parallel.exchange import Ranks


@pytest.fixture
def group(tmp_path) -> Iterator[str]:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


def test_tokens_are_divided_with_sequence_parallelism_alone() -> None:
    x = torch.arange(24).view(1, 12, 2)
    split, whole = (Ranks(size=4, index=2, group="", by_tokens=by_tokens) for by_tokens in (True, False))
    assert torch.equal(split.own(x), x[:, 6:9])
    assert torch.equal(split.own(x[0], 0), x[0, 6:9])
    assert whole.own(x) is x
    assert (split.stream_tokens(12), split.all_tokens(3)) == (3, 12)
    assert (whole.stream_tokens(12), whole.all_tokens(12)) == (12, 12)


@pytest.mark.parametrize("by_tokens", [True, False])
@pytest.mark.parametrize("step", ["enter", "leave", "join"])
def test_alone_nothing_changes(group: str, step: str, by_tokens: bool) -> None:
    ranks = Ranks(size=1, index=0, group=group, by_tokens=by_tokens)
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.equal(getattr(ranks, step)(x), x)
    assert torch.autograd.gradcheck(getattr(ranks, step), (x,))
