"""``FakeAccelerator``: a device of any kind, without the device: what asks torch about one can be tested anywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import machinery
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self
from unittest.mock import patch

import torch

from trainwright.hardware.catalogue.accelerators import Accelerator, accelerator


class FakeEvent:
    """An event in the stream of the fake device that made it; it has passed when the device was waited for."""

    device: FakeAccelerator

    def __init__(self, device: Any = None, *, enable_timing: bool = False) -> None:
        self.timed, self.of = enable_timing, device
        self._at_s = 0.0

    def record(self, _stream: Any = None) -> None:
        """Takes the device's time: when it will have done what was asked of it until now."""
        self._at_s = self.device.busy_until_s

    def synchronize(self) -> None:
        """Waits for the device to come to it."""
        self.device.wait()

    def elapsed_time(self, other: FakeEvent) -> float:
        """Returns the milliseconds to a later event.

        Raises:
            RuntimeError: nobody has waited for the device, as torch says too.
        """
        if not self.timed or not other.timed:
            raise RuntimeError("these events tell no time")
        if other._at_s > self.device.waited_until_s:  # of its own class
            raise RuntimeError("the device has not come to this event")
        return (other._at_s - self._at_s) * 1e3  # of its own class


class FakeAccelerator:
    """Inside its context torch has one device of a kind, which computes when it is told that it does.

    ``torch.accelerator``, ``torch.Event`` and the device's module answer for it and the times are counted
    that the host waits for it; tensors stay on the processor.
    """

    def __init__(self, kind: str, *, capability: tuple[int, int] = (9, 0), memory_bytes: int = 80 << 30) -> None:
        self.record: Accelerator = accelerator(kind)
        self.capability, self.memory_bytes = capability, memory_bytes
        self.waits = 0
        self.busy_until_s = self.waited_until_s = 0.0
        self.peak_bytes, self.allocated_bytes = 0, 0
        self._stack = ExitStack()

    @property
    def device(self) -> Any:
        """Returns the device as code under test is given it; torch makes none of a kind that it does not know."""
        return SimpleNamespace(type=self.record.torch_type)

    def compute(self, seconds: float, *, peak_bytes: int = 0) -> None:
        """Keeps the device busy for so long; the host goes on at once."""
        self.busy_until_s += seconds
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes + peak_bytes)

    def __enter__(self) -> Self:
        """Puts it into torch's place."""
        FakeEvent.device = self
        answers: dict[str, Callable[..., Any]] = {
            "current_accelerator": lambda **_options: self.device,
            "is_available": lambda: True,
            "synchronize": self.wait,
            "current_stream": lambda *_arguments: None,
            "empty_cache": bool,
            "reset_peak_memory_stats": self._forget_peak,
            "memory_allocated": lambda: self.allocated_bytes,
            "max_memory_allocated": lambda: self.peak_bytes,
            "max_memory_reserved": lambda: self.peak_bytes,
        }
        for name, answer in answers.items():
            self._stack.enter_context(patch.object(torch.accelerator, name, answer))
        self._stack.enter_context(patch.object(torch, "Event", FakeEvent))
        self._stack.enter_context(patch.object(torch, "get_device_module", lambda _device: self._module()))
        hip = "6.4" if self.record.kind == "rocm" else None
        self._stack.enter_context(patch.object(torch.version, "hip", hip))
        if self.record.package:
            module = ModuleType(self.record.package)
            module.__spec__ = machinery.ModuleSpec(self.record.package, loader=None)
            self._stack.enter_context(patch.dict("sys.modules", {self.record.package: module}))
        seen = property(lambda record: record.kind == self.record.kind)
        self._stack.enter_context(patch.object(Accelerator, "seen", seen))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives torch back."""
        self._stack.close()

    @property
    def waited(self) -> bool:
        """Returns whether the host has ever waited for it."""
        return self.waits > 0

    def _forget_peak(self) -> None:
        self.peak_bytes = self.allocated_bytes

    def wait(self) -> None:
        """Keeps the host until the device has done all that was asked of it."""
        self.waits += 1
        self.waited_until_s = self.busy_until_s

    def _module(self) -> Any:
        major, minor = self.capability
        properties = SimpleNamespace(name=f"Fake {self.record.title}", total_memory=self.memory_bytes)
        if self.record.torch_type == "cuda":
            properties.major, properties.minor = major, minor
        return SimpleNamespace(get_device_properties=lambda _index: properties)
