"""``FakeAccelerator``: a device of any kind, without the device: what asks torch about one can be tested anywhere."""

from __future__ import annotations

from collections import Counter
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

    def record(self, stream: Any = None) -> None:
        """Takes the device's time: when it will have done what was asked of it until now; it has one stream."""
        del stream
        self._at_s = self.device.busy_until_s

    def synchronize(self) -> None:
        """Waits until the device has come here."""
        self.device.wait_for_event(self._at_s)

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

    ``torch.accelerator``, ``torch.Event`` and the device's module answer for it and count what they are asked in
    ``calls``; tensors stay on the processor.
    """

    def __init__(self, kind: str, *, capability: tuple[int, int] = (9, 0), memory_bytes: int = 80 << 30) -> None:
        self.record: Accelerator = accelerator(kind)
        self.capability, self.memory_bytes = capability, memory_bytes
        self.calls: Counter[str] = Counter()
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
            "current_stream": lambda _device=None: self.record.kind,
            "is_available": lambda: True,
            "synchronize": self._wait,
            "empty_cache": bool,
            "reset_peak_memory_stats": self._forget_peak,
            "memory_allocated": lambda: self.allocated_bytes,
            "max_memory_allocated": lambda: self.peak_bytes,
            "max_memory_reserved": lambda: self.peak_bytes,
        }
        for name, answer in answers.items():
            self._stack.enter_context(patch.object(torch.accelerator, name, self._counted(name, answer)))
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

    def asked(self, name: str) -> int:
        """Returns how often ``torch.accelerator`` was asked so."""
        return self.calls[name]

    def wait_for_event(self, at_s: float) -> None:
        """Makes the host wait until the device has come to a moment, and counts it as ``synchronize``."""
        self.calls["synchronize"] += 1
        self.waited_until_s = max(self.waited_until_s, at_s)

    def _forget_peak(self) -> None:
        self.peak_bytes = self.allocated_bytes

    def _wait(self) -> None:
        self.waited_until_s = self.busy_until_s

    def _counted(self, name: str, answer: Any) -> Any:
        def ask(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return answer(*arguments, **options)

        return ask

    def _module(self) -> Any:
        major, minor = self.capability
        properties = SimpleNamespace(name=f"Fake {self.record.title}", total_memory=self.memory_bytes)
        if self.record.torch_type == "cuda":
            properties.major, properties.minor = major, minor
        return SimpleNamespace(get_device_properties=lambda _index: properties)
