"""A step from tensor to tensor: closures, parameters without a gradient, parts of a tensor."""

from __future__ import annotations

import pytest
import torch

from trainwright.model.optimizers.base import CHUNK_ELEMENTS, ByTensor, chunks


class Numbered(ByTensor):
    """Writes each tensor's number into it."""

    def update(self, parameter, grad_of, group, number):
        parameter.copy_(torch.full_like(parameter, number))


def test_a_closure_computes_gradients_and_what_has_none_stays():
    first, second, third = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = Numbered([{"params": [first]}, {"params": [second, third]}], {})

    def closure():
        (2 * third).sum().backward()
        return 7.0

    assert optimizer.step(closure) == 7.0
    assert first.tolist() == second.tolist() == [1, 1]
    assert third.tolist() == [2, 2], "its place among all"
    assert optimizer.step() is None


def test_the_rule_itself_is_each_ones_own():
    with pytest.raises(TypeError, match="abstract"):
        ByTensor([torch.nn.Parameter(torch.ones(2))], {})


def test_parts_are_the_tensors_memory():
    one, other = torch.zeros(CHUNK_ELEMENTS // 4, 5), torch.zeros(CHUNK_ELEMENTS // 4, 5)
    parts = list(chunks(one, other))
    assert [len(mine) for mine, _ in parts] == [CHUNK_ELEMENTS, one.numel() - CHUNK_ELEMENTS]
    for mine, theirs in parts:
        mine.add_(1)
        theirs.add_(2)
    assert one.unique().tolist() == [1] and other.unique().tolist() == [2]
