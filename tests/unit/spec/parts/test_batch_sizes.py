"""Sizes of batches against a list of them, one for each update."""

from __future__ import annotations

from itertools import accumulate

import pytest

from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes


def part(tokens: int, steps: int) -> BatchPart:
    return BatchPart(batch_tokens=tokens, steps=steps)


RAMP = (part(2, 3), part(4, 1), part(6, 2))


@pytest.mark.parametrize("ramp", [(), RAMP, RAMP[:1], (part(10, 4),)])
def test_sizes_are_those_of_a_list(ramp) -> None:
    sizes = BatchSizes(full=10, ramp=ramp)
    every = [size for each in ramp for size in [each.batch_tokens] * each.steps] + [10] * 12
    assert [sizes.at(step) for step in range(12)] == every[:12]
    sums = [0, *accumulate(every)]
    for steps in range(12):
        assert sizes.tokens(steps) == sums[steps]
        assert [each.batch_tokens for each in sizes.parts(steps) for _ in range(each.steps)] == every[:steps]
        assert sizes.steps(sums[steps]) == steps
    for tokens in range(80):
        steps = sizes.steps(tokens)
        nearest = min(abs(each - tokens) for each in sums)
        assert abs(sums[steps] - tokens) == nearest, tokens
    assert sizes.different == tuple(sorted(set(every)))
