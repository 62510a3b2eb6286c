"""The device to compute on, and what torch knows about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from trainwright.core.registry import load
from trainwright.hardware.machine.processor import cpu_features
from trainwright.spec.device import DeviceKind

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DTYPES |= {"tf32": torch.float32, "fp8": torch.bfloat16}
"""Torch's types of activations by our names."""
Mark = float | torch.Event
"""A moment: of the host in seconds, or when a device comes to it."""
ACCELERATORS = "trainwright.runtime.accelerators"
"""What only other devices than a processor need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that training or probing runs on; ``memory_bytes`` is the accelerator's, None where nobody tells."""

    kind: DeviceKind
    name: str
    memory_bytes: int | None
    native_bf16: bool
    torch_type: str = "cpu"

    @property
    def torch_device(self) -> torch.device:
        """Returns the device that tensors are made on."""
        return torch.device(self.torch_type)


def choose(wanted: str = "auto") -> Device:
    """Returns the device asked for; ``auto`` takes the accelerator that torch sees, else the processor.

    Args:
        wanted: as ``train.exec.device``.

    Raises:
        MachineError: a kind is asked for by name, and torch sees no such device; says what is missing.
    """
    found: Device | None = None if wanted == "cpu" else load(f"{ACCELERATORS}:found", kind="device")(wanted)
    return found or Device(
        kind="cpu", name=torch.backends.cpu.get_cpu_capability(), memory_bytes=None, native_bf16=native_bf16()
    )


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything asked of it; a CPU always has."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def marker(device: torch.device) -> Callable[[], Mark]:
    """Returns what marks a moment on a device, without making the host wait for it."""
    if device.type == "cpu":
        return time.perf_counter
    of_device: Callable[[], Mark] = load(f"{ACCELERATORS}:marker", kind="device")(device)
    return of_device


def compiler(torch_type: str) -> str:
    """Returns torch.compile's backend for a device that torch calls so, made ready for it."""
    if torch_type != "cpu":
        return str(load(f"{ACCELERATORS}:compiler", kind="device")(torch_type))
    load("trainwright.runtime.gcc:keep_exact", kind="device")()
    return "inductor"


def pins(torch_type: str) -> bool:
    """Returns whether what crosses between the host and a device that torch calls so goes through pinned memory."""
    return torch_type != "cpu" and bool(load(f"{ACCELERATORS}:pins", kind="device")(torch_type))


def widest(torch_type: str) -> torch.dtype:
    """Returns the dtype in which a device that torch calls so adds up most exactly: fp64, or fp32 where it has none."""
    exact = torch_type == "cpu" or bool(load(f"{ACCELERATORS}:has_fp64", kind="device")(torch_type))
    return torch.float64 if exact else torch.float32


def passed(mark: Mark, device: torch.device) -> None:
    """Wait until the device has passed a mark; where marks are the host's clock, until it has done everything."""
    if isinstance(mark, torch.Event):
        mark.synchronize()
    else:
        synchronise(device)


def seconds_between(begin: Mark, end: Mark) -> float:
    """Returns the seconds from one mark to a later one that the device has passed."""
    if isinstance(begin, float) and isinstance(end, float):
        return end - begin
    assert isinstance(begin, torch.Event)
    assert isinstance(end, torch.Event)
    return begin.elapsed_time(end) / 1e3


@cache
def native_bf16() -> bool:
    """Returns whether this CPU has instructions for bf16 products: AVX-512 BF16, AMX or Arm's BF16."""
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(cpu_features())
