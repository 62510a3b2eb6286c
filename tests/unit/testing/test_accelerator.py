"""The fake is as strict as torch is: an event that nobody waited for tells no time, and torch comes back whole."""

from __future__ import annotations

import pytest
import torch

from trainwright.testing.accelerator import FakeAccelerator


def test_an_event_that_nobody_waited_for_tells_no_time() -> None:
    with FakeAccelerator("cuda") as fake:
        begin, end = (torch.Event(enable_timing=True) for _ in range(2))
        begin.record()
        fake.compute(1.5)
        end.record()
        with pytest.raises(RuntimeError, match="has not come to this event"):
            begin.elapsed_time(end)
        torch.accelerator.synchronize()
        assert begin.elapsed_time(end) == 1500.0


def test_torch_is_given_back() -> None:
    before = torch.Event, torch.accelerator.synchronize, torch.get_device_module
    with FakeAccelerator("npu"):
        assert torch.accelerator.is_available()
    assert (torch.Event, torch.accelerator.synchronize, torch.get_device_module) == before
