"""A gate against numpy's mean and deviation, and a fused kernel that is told to change nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import SGD, AdamW

from trainwright.runtime.faults.gate import Gate
from trainwright.spec.sections.faults import FaultsSection

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Numbers:
    loss_sum: Tensor
    targets: Tensor
    grad_norm: Tensor


def numbers(loss: float, norm: float = 1.0) -> Numbers:
    return Numbers(torch.tensor(loss * 4), torch.tensor(4), torch.tensor(norm))


def gate(**section) -> Gate:
    return Gate(FaultsSection(**section), [], CPU)


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (1.0, float("inf")), (1.0, float("nan"))])
def test_what_is_not_finite_does_not_pass(loss, norm) -> None:
    here = gate(not_finite="skip")
    assert here.passes(numbers(1.0))
    assert not here.passes(numbers(loss, norm))
    assert here.passes(numbers(1.0)), "the next one does"
    (fault,) = here.faults(reading=False)
    assert (fault.number, fault.kind) == (1, "not_finite")
    assert not np.isfinite(fault.value)
    assert here.faults(reading=True) == []


def test_after_a_fault_that_stops_nothing_passes() -> None:
    here = gate()
    assert not here.passes(numbers(float("nan")))
    assert not here.passes(numbers(1.0)), "the weights are those that the fault is explained with"
    assert [fault.number for fault in here.faults(reading=True)] == [0]


def test_a_spike_is_judged_by_mean_and_deviation_of_the_last_updates() -> None:
    rng = np.random.default_rng(3)
    here, made = gate(spike="skip", spike_sigma=2, window=12), []
    found = 0
    for _ in range(300):
        loss, norm = rng.normal(3, 0.1), rng.normal(1, 0.2)
        row = np.float64([torch.tensor(loss * 4).double() / 4, torch.tensor(norm)])
        last = np.array(made[-12:])
        spike = len(last) >= 8 and bool((row > last.mean(0) + 2 * last.std(0, ddof=1)).any())
        assert here.passes(numbers(loss, norm)) != spike
        found += spike
        made += [] if spike else [row]
    assert 5 < found < 100
    np.testing.assert_array_equal(here.seen, np.array(made[-12:]))


def test_a_window_from_a_checkpoint_decides_alike() -> None:
    rng = np.random.default_rng(4)
    section = FaultsSection(spike="skip", spike_sigma=1.5, window=9)
    whole, parts = Gate(section, [], CPU), Gate(section, [], CPU)
    for number in range(60):
        update = numbers(rng.normal(3, 0.1))
        if number % 7 == 0:
            parts = Gate(section, [], CPU, seen=parts.seen)
        assert whole.passes(update) == parts.passes(update)


def test_a_fused_kernel_is_told_on_the_device_and_changes_nothing(monkeypatch) -> None:
    """As on an accelerator: nobody reads the decision before the update is enqueued."""
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = AdamW([weight], lr=0.1, fused=True)
    here = Gate(FaultsSection(not_finite="skip"), [optimizer], CPU)
    monkeypatch.setattr(here, "_here", False)
    monkeypatch.setattr(here, "_masks", True)
    seen = []
    for loss in (1.0, float("nan"), 1.0):
        weight.grad = torch.full((8,), loss)
        assert here.passes(numbers(loss)), "the optimizer is called each time"
        optimizer.step()
        seen.append((weight.detach().clone(), float(optimizer.state[weight]["step"])))
    assert torch.equal(seen[0][0], seen[1][0]) and seen[0][1] == seen[1][1] == 1
    assert not torch.equal(seen[1][0], seen[2][0]) and seen[2][1] == 2
    assert here.faults(reading=False) == [], "not known yet"
    assert [fault.number for fault in here.faults(reading=True)] == [1]


def test_a_window_on_a_device_judges_without_being_read(monkeypatch) -> None:
    here = Gate(FaultsSection(spike="skip", spike_sigma=3, window=16), [], CPU)
    there = Gate(FaultsSection(spike="skip", spike_sigma=3, window=16), [], CPU)
    monkeypatch.setattr(there, "_here", False)
    rng = np.random.default_rng(5)
    for number in range(80):
        update = numbers(rng.normal(3, 0.1) + (5 if number in (20, 50) else 0))
        assert here.passes(update) == there.passes(update)


def test_an_optimizer_without_such_a_kernel_makes_the_host_wait_only_where_updates_are_left_out(monkeypatch) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    for policy, passes in (("stop", True), ("rollback", True), ("skip", False)):
        here = Gate(FaultsSection(not_finite=policy), [SGD([weight], lr=1.0)], CPU)
        monkeypatch.setattr(here, "_here", False)
        assert here.passes(numbers(float("nan"))) == passes
