from dataclasses import FrozenInstanceError

import pytest

from trainwright.spec.stack import Stack, StackMemory, StackTime


def test_a_stack_that_says_nothing_differs_from_no_other():
    plain = StackTime()
    assert (plain.compute, plain.attention, plain.traffic, plain.launch) == (1, 1, 1, 1)
    assert not plain.tuned
    assert StackMemory().activations == 1


def test_stacks_are_values():
    one, other = (Stack(name="x", title="X", states="fp32") for _ in range(2))
    assert one == other
    with pytest.raises(FrozenInstanceError):
        one.name = "y"
