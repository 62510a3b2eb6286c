"""Every device but a processor, through ``torch.accelerator`` and the device's record in the catalogue.

Loaded only where a device is looked for or used: ``runtime.device`` and ``runtime.memory`` name it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from trainwright.core.errors import MachineError
from trainwright.hardware.catalogue.accelerators import Accelerator, accelerator, accelerators
from trainwright.runtime.device import Device, Mark

WHERE = "train.exec.device"


def found(wanted: str) -> Device | None:
    """Returns the first device of a kind; None: any is wanted, and torch has none.

    Raises:
        MachineError: a kind is wanted by name; says whether the system, torch or a package lacks it.
    """
    if wanted == "auto":
        usable = (record for record in accelerators() if record.kind != "cpu" and _usable(record))
        return next(map(_described, usable), None)
    record = accelerator(wanted)
    if not _usable(record):
        raise _missing(record)
    return _described(record)


def record_of(torch_type: str) -> Accelerator:
    """Returns the record of the kind that torch calls so."""
    here = torch.version.hip is not None
    return accelerator("rocm" if torch_type == "cuda" and here else torch_type)


def marker(device: torch.device) -> Callable[[], Mark]:
    """Returns what marks a moment: an event in the stream that is current now, whatever stream is used meanwhile.

    Where events tell no time it is the host's clock.
    """
    if not record_of(device.type).timed_events:
        return time.perf_counter
    stream = torch.accelerator.current_stream(device)

    def mark() -> Mark:
        event = torch.Event(device, enable_timing=True)
        event.record(stream)
        return event

    return mark


def reset_peak(device: torch.device) -> None:
    """Gives unused memory back to the device, and forgets earlier peaks."""
    torch.accelerator.empty_cache()
    if record_of(device.type).allocator_statistics:
        torch.accelerator.reset_peak_memory_stats()


def memory_bytes(device: torch.device) -> tuple[int, int, int] | None:
    """Returns what is allocated now, the highest it was, and the highest that was reserved; None: nobody counts."""
    if not record_of(device.type).allocator_statistics:
        return None
    ask = torch.accelerator
    return ask.memory_allocated(), ask.max_memory_allocated(), ask.max_memory_reserved()


def collectives(torch_type: str) -> str:
    """Returns the library over which ranks on such devices meet, as torch.distributed calls it."""
    return record_of(torch_type).collectives


def compiler(torch_type: str) -> str:
    """Returns torch.compile's backend for such a device."""
    return record_of(torch_type).compiler


def has_fp64(torch_type: str) -> bool:
    """Returns whether such a device computes in fp64."""
    return record_of(torch_type).fp64


def prepare_deterministic(device: torch.device) -> None:
    """Sets what the device's libraries read from the environment before they compute the same bits each time."""
    for name, value in record_of(device.type).deterministic.items():
        os.environ.setdefault(name, value)


def pins(torch_type: str) -> bool:
    """Returns whether such a device copies from pinned memory of the host without stopping it."""
    return record_of(torch_type).pinned_memory


def _usable(record: Accelerator) -> bool:
    """Returns whether torch computes on such a device here; brings its package to torch where the system shows one."""
    if record.package:
        if not record.installed or not record.seen:
            return False
        import_module(record.package)
    here = torch.accelerator.current_accelerator(check_available=True)
    return here is not None and record_of(here.type) is record


def _described(record: Accelerator) -> Device:
    module: Any = torch.get_device_module(record.torch_type)
    properties = module.get_device_properties(0) if hasattr(module, "get_device_properties") else None
    major = getattr(properties, "major", None)
    capability = None if major is None else f"{major}.{getattr(properties, 'minor', 0)}"
    return Device(
        kind=record.kind,
        name=str(getattr(properties, "name", record.title)),
        memory_bytes=getattr(properties, "total_memory", None),
        native_bf16=record.multiplies_bf16(capability),
        torch_type=record.torch_type,
    )


def _missing(record: Accelerator) -> MachineError:
    here = torch.accelerator.current_accelerator(check_available=True)
    if not record.installed:
        seen, fix = f"{record.package} is not installed", record.install
    elif here is not None:
        seen, fix = f"torch {torch.__version__} computes on {here.type}", f"set {WHERE}={record_of(here.type).kind}"
    elif record.torch_type == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        seen, fix = f"torch {torch.__version__}, built for processors alone", record.install
    else:
        seen = f"torch {torch.__version__} finds no {record.title} or no driver"
        fix = "check nvidia-smi" if record.kind == "cuda" else f"check the driver ({record.install})"
    return MachineError("no {title} here", where=WHERE, seen=seen, fix=f"{fix}, or set {WHERE}=cpu", title=record.title)
