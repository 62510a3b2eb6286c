"""Our optimizers and a plug-in keep the contract; an optimizer that breaks it is noticed."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.testing.contract_optimizer import OptimizerContract


def plain_sgd(network, section):
    return [torch.optim.SGD(network.parameters(), lr=section.lr)]


def forgetful(network, section):
    """Leaves every table out."""
    tables = network.tables()
    return [torch.optim.SGD([p for name, p in network.named_parameters() if name not in tables], lr=section.lr)]


class Counting(torch.optim.SGD):
    """Remembers its steps outside its state, so that a resumed run differs."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        for group in self.param_groups:
            group["lr"] *= 1 / self.steps
        return super().step(closure)


def counting(network, section):
    return [Counting(network.parameters(), lr=section.lr)]


@pytest.fixture(autouse=True)
def _plugged(monkeypatch):
    module = types.SimpleNamespace(plain_sgd=plain_sgd, forgetful=forgetful, counting=counting)
    monkeypatch.setitem(sys.modules, "plugged_optimizers", module)


class TestAdamW(OptimizerContract):
    optimizer = "adamw"


class TestMuon(OptimizerContract):
    optimizer = "muon"


class TestPlugIn(OptimizerContract):
    optimizer = "plugged_optimizers:plain_sgd"
    keys = {"lr": 1.0}  # noqa: RUF012  # as a plug-in's author would write it


def broken(name: str) -> OptimizerContract:
    return type("Broken", (OptimizerContract,), {"optimizer": f"plugged_optimizers:{name}", "keys": {"lr": 1.0}})()


def test_a_parameter_that_is_left_out_is_named() -> None:
    with pytest.raises(RecipeError, match=r"updates 'embedding' 0 times a step .*forgetful"):
        broken("forgetful").test_every_parameter_is_updated_once()


def test_what_is_remembered_outside_the_state_is_noticed(tmp_path) -> None:
    with pytest.raises(AssertionError):
        broken("counting").test_a_run_that_goes_on_from_its_state_ends_in_the_same_bits(tmp_path)
