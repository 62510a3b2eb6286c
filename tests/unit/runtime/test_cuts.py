"""Parts of a tensor and the whole of them; the other ranks are stood in for, real ones are in ``tests/parallel``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainwright.runtime import cuts
from trainwright.runtime.cuts import Cut, cut_of, mark, whole_shape

WHOLE = torch.arange(35.0).view(7, 5)
EVEN = (range(3), range(3, 7))
COPIES = (range(3), range(3), range(3, 7), range(3, 7))
GROUP: Any = SimpleNamespace(group_name="ranks")


def cut(rank: int, *, parts: tuple[range, ...] = EVEN, dim: int = 0, whole: torch.Size = WHOLE.shape) -> Cut:
    return Cut(group=GROUP, rank=rank, whole=whole, dim=dim, parts=parts)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets one rank hear what it is told that all ranks send."""

    def hear(parts: list[Tensor]) -> None:
        longest = max(part.shape[0] for part in parts)
        padded = [torch.cat([part, part.new_zeros(longest - part.shape[0], *part.shape[1:])]) for part in parts]

        def gathered(mine: Tensor, ranks: int, group: str) -> Tensor:
            assert (ranks, group) == (len(parts), "ranks")
            assert mine.shape == padded[0].shape
            return torch.cat(padded)

        monkeypatch.setattr(cuts, "gathered", gathered)

    return hear


@pytest.mark.parametrize(("parts", "dim"), [(EVEN, 0), ((range(2), range(2, 5)), 1), (COPIES, 0)], ids=str)
def test_parts_come_together_again(together: Any, parts: tuple[range, ...], dim: int) -> None:
    every = [cut(rank, parts=parts, dim=dim) for rank in range(len(parts))]
    taken = [each.take(WHOLE) for each in every]
    assert [part.shape for part in taken] == [each.shape for each in every]
    together([part.transpose(0, dim) for part in taken])
    for each, part in zip(every, taken, strict=True):
        assert torch.equal(each.gather(part), WHOLE)


def test_what_is_taken_has_memory_of_its_own() -> None:
    part = cut(1).take(WHOLE)
    part.zero_()
    assert bool(WHOLE[3:].all())
    assert cut(0, parts=(range(2), range(2, 5)), dim=1).take(WHOLE).is_contiguous()


def test_a_copy_of_everything_is_not_sent() -> None:
    everything = cut(0, parts=(range(7), range(7)))
    assert everything.gather(WHOLE) is WHOLE


def test_a_parameter_knows_its_cut() -> None:
    parameter = nn.Parameter(torch.zeros(3, 5))
    assert cut_of(parameter) is None
    assert whole_shape(parameter) == (3, 5)
    mark(parameter, cut(0))
    assert whole_shape(parameter) == (7, 5)
    assert cut_of(parameter) == cut(0)
