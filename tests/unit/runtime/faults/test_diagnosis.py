"""The first module that makes a number that is not finite, among modules of which it is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from trainwright.runtime.faults.diagnosis import first_not_finite

BAD = 7.0


class Spoils(nn.Module):
    """Passes rows on, but those that begin with a certain number; or their gradient alone."""

    def __init__(self, *, backward: bool) -> None:
        super().__init__()
        self.backward = backward

    def forward(self, x: Tensor) -> Tensor:
        bad = (x[:, :1] == BAD).float()
        if not self.backward:
            return x / (1 - bad)
        made = x * 1
        made.register_hook(lambda gradient: gradient / (1 - bad))
        return made * 1


class Tiny:
    """Two modules in a row, two sequences at a time."""

    micro_batch = 2

    def __init__(self, *, backward: bool) -> None:
        self.network = nn.Sequential()
        self.network.add_module("first", Spoils(backward=backward))
        self.network.add_module("second", nn.Linear(3, 3))

    def loss(self, micro: Tensor):
        return self.network(micro.requires_grad_()).sum(), torch.tensor(1)

    def gradient(self, batch) -> None:
        for micro in batch["x"].split(self.micro_batch):
            self.loss(micro)[0].backward()


def batch(*bad: int) -> dict[str, Tensor]:
    x = torch.ones(6, 3)
    x[list(bad), 0] = BAD
    return {"x": x}


def test_all_finite_is_nothing() -> None:
    assert first_not_finite(Tiny(backward=False), batch()) is None


@pytest.mark.parametrize(("bad", "rows"), [((3,), (3,)), ((4, 5), (4, 5)), ((1, 4), (1,))])
def test_the_first_module_and_its_sequences(bad, rows) -> None:
    found = first_not_finite(Tiny(backward=False), batch(*bad))
    assert found is not None
    assert (found.what, found.rows) == ("first", rows)


def test_a_loss_of_finite_numbers_is_named_as_such() -> None:
    step = Tiny(backward=False)
    compute = step.loss
    step.loss = lambda micro: (compute(micro)[0] * float("inf"), None)
    found = first_not_finite(step, batch())
    assert found is not None
    assert found.what == "the loss"
    assert found.rows == (0, 1)


def test_a_gradient_that_breaks_is_named_by_what_it_belongs_to() -> None:
    step = Tiny(backward=True)
    step.network = nn.Sequential(nn.Linear(3, 3, bias=False), step.network.first)
    with torch.no_grad():
        step.network[0].weight.copy_(torch.eye(3))
    found = first_not_finite(step, batch(2))
    assert found is not None
    assert found.what == "the gradient of what 0 made"
    assert found.rows == (2,)


def test_nothing_is_left_behind() -> None:
    step = Tiny(backward=False)
    first_not_finite(step, batch(1))
    assert "loss" not in vars(step)
    assert not any(vars(module)["_forward_hooks"] for module in step.network.modules())
