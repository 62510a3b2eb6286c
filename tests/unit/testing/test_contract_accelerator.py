"""The contract notices records that are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.accelerators import accelerator
from trainwright.testing import contract_accelerator
from trainwright.testing.accelerator import FakeAccelerator


class OfCuda(contract_accelerator.AcceleratorContract):
    kind = "cuda"


def wrong(monkeypatch: pytest.MonkeyPatch, **changes: object) -> OfCuda:
    record = replace(accelerator("cuda"), **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(contract_accelerator, "accelerator", lambda _kind: record)
    return OfCuda()


@pytest.mark.parametrize("changes", [{"source": ""}, {"recorded": "soon"}, {"install": "ask"}, {"verified": "yes"}])
def test_a_record_without_source_date_or_way_to_get_it_fails(monkeypatch, changes) -> None:
    with pytest.raises(AssertionError):
        wrong(monkeypatch, **changes).test_its_record_says_where_it_is_from_and_how_it_stands()


def test_a_library_that_torch_would_not_take_fails(monkeypatch) -> None:
    with pytest.raises(AssertionError):
        wrong(monkeypatch, collectives="gloo").test_torch_meets_over_the_same_library_where_it_knows_the_device()


def test_a_clock_that_waits_fails(monkeypatch) -> None:
    class Impatient(contract_accelerator.PhaseClock):
        def _switch(self, name: str) -> None:
            super()._switch(name)
            contract_accelerator.accelerators.torch.accelerator.synchronize()

    monkeypatch.setattr(contract_accelerator, "PhaseClock", Impatient)
    with FakeAccelerator("cuda") as fake, pytest.raises(AssertionError):
        OfCuda().test_phases_are_timed_without_waiting_for_it(fake)
