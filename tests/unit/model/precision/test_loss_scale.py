"""Loss scaling against its own rule by hand; whole trainings are in ``tests/unit/stages/train/faults``."""

from __future__ import annotations

import math

import pytest
import torch

from trainwright.model.precision.loss_scale import LossScale
from trainwright.runtime.faults.gate import Fault, Gate
from trainwright.spec.sections.faults import FaultsSection
from trainwright.spec.sections.train import LossScaleSection
from trainwright.stages.train.step import Update

CPU = torch.device("cpu")


def scale(**section) -> LossScale:
    return LossScale(LossScaleSection(**section), CPU)


def update(loss: float = 1.0, norm: float = 1.0) -> Update:
    return Update(loss_sum=torch.tensor(loss), targets=torch.tensor(1), grad_norm=torch.tensor(norm))


def test_the_factor_halves_with_an_overflow_and_doubles_after_enough_updates_without_one() -> None:
    here = scale(initial=8, growth_steps=3, least=2)
    seen = []
    for overflow in (1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1):
        here.follow(torch.tensor(bool(overflow)))
        seen.append((float(here.factor), int(here.steady)))
    by_hand, factor, steady = [], 8.0, 0
    for overflow in (1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1):
        factor, steady = (max(2.0, factor / 2), 0) if overflow else (factor, steady + 1)
        factor, steady = (factor * 2, 0) if steady == 3 else (factor, steady)
        by_hand.append((factor, steady))
    assert seen == by_hand


def test_a_run_begins_with_a_power_of_two() -> None:
    assert float(scale(initial=50000).factor) == 65536
    assert float(scale(initial=1, least=4).factor) == 4


@pytest.mark.parametrize(
    ("loss", "norm", "factor", "kind"),
    [
        (1.0, math.inf, 4.0, "overflow"),
        (1.0, math.nan, 4.0, "overflow"),
        (1.0, math.inf, 1.0, "not_finite"),
        (math.nan, math.nan, 4.0, "not_finite"),
        (math.inf, 1.0, 4.0, "not_finite"),
    ],
)
def test_an_overflow_is_no_fault_before_the_least_factor(loss, norm, factor, kind) -> None:
    here = LossScale(LossScaleSection(), CPU, factor=factor)
    gate = Gate(FaultsSection(), [], CPU, scale=here)
    assert gate.passes(update())
    assert not gate.passes(update(loss, norm))
    (fault,) = gate.faults(reading=False)
    assert (fault.kind, fault.number) == (kind, 1)
    assert float(here.factor) == (factor / 2 if kind == "overflow" else factor)
    assert gate.passes(update()) == (kind == "overflow"), "after a fault that stops the gate stays shut"


def test_an_overflow_is_no_spike_and_enters_no_window() -> None:
    gate = Gate(FaultsSection(spike="stop", window=8), [], CPU, scale=scale())
    for number in range(10):
        assert gate.passes(update(norm=1 + number / 100))
    before = gate.seen
    assert not gate.passes(update(norm=math.inf))
    assert [fault.kind for fault in gate.faults(reading=True)] == ["overflow"]
    assert gate.seen == before
    assert gate.passes(update(norm=1.05))


def test_where_no_kernel_takes_a_mask_the_decision_is_read(monkeypatch) -> None:
    """As on an accelerator: a fault stops, so that its update need not be held back, but an overflow's must be."""
    gate = Gate(FaultsSection(), [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])], CPU, scale=scale())
    monkeypatch.setattr(gate, "_here", False)
    monkeypatch.setattr(gate, "_masks", False)
    assert gate.passes(update())
    assert not gate.passes(update(norm=math.inf))
    assert [type(fault) for fault in gate.faults(reading=True)] == [Fault]
