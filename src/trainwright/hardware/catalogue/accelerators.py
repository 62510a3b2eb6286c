"""Reads ``catalog/accelerators``: one TOML file per kind of device that torch can train on, and what it takes there.

No torch here: a plan and the doctor say which of them were never run on hardware. What asks torch about a device that
is there is ``runtime.accelerators``, and the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue import tables
from trainwright.spec.device import DeviceKind

_FOLDER = "accelerators"
NEVER_RUN = "never run on hardware"
NEVER_RUN_KEY = "never_run"
"""Of the assumption of a plan that says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """A kind of device, and how torch trains on it.

    ``torch_type`` is what torch calls it; ``package`` brings it to torch where torch itself does not, and ``install``
    is how a user gets it. ``collectives`` names the library of torch.distributed, ``compiler`` torch.compile's backend,
    which ``compile: auto`` takes only where the kind ``compiles_by_itself``. ``bf16`` says which devices multiply bf16
    faster than fp32: ``always``, ``never``, ``instructions`` (of a processor), or ``capability 8.0`` and higher.
    ``fp64``: torch has tensors of it there.
    ``pinned_memory``: copies from such memory do not stop the host. ``timed_events``: events tell when the device
    passed them. ``allocator_statistics``: torch knows the peak of memory. ``deterministic`` are variables of the
    environment that deterministic algorithms need. ``device_files`` are patterns of what the system shows where such a
    device is. ``verified`` is the result file of a run on hardware; empty: nobody has run it.
    """

    kind: DeviceKind
    title: str
    torch_type: str
    install: str
    collectives: str
    compiler: str
    bf16: str
    pinned_memory: bool
    timed_events: bool
    allocator_statistics: bool
    verified: str
    source: str
    recorded: str
    package: str = ""
    compiles_by_itself: bool = True
    fp64: bool = True
    device_files: tuple[str, ...] = ()
    deterministic: Mapping[str, str] = field(default_factory=dict)

    @property
    def standing(self) -> str:
        """Returns the result file that shows it at work, or that nobody has run it."""
        return self.verified or NEVER_RUN

    @property
    def seen(self) -> bool:
        """Returns whether the system shows such a device, as far as it shows them in files."""
        return any(next(Path("/").glob(pattern.removeprefix("/")), None) for pattern in self.device_files)

    @property
    def installed(self) -> bool:
        """Returns whether the package that brings it to torch is there; imports nothing."""
        return not self.package or find_spec(self.package) is not None

    def multiplies_bf16(self, capability: str | None) -> bool:
        """Returns whether a device of this compute capability multiplies bf16 faster than fp32."""
        if not self.bf16.startswith("capability"):
            return self.bf16 == "always"
        least = self.bf16.removeprefix("capability ")
        return capability is not None and _numbers(capability) >= _numbers(least)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def accelerator(kind: str) -> Accelerator:
    """Returns the record of a kind of device."""
    entry = dict(tables.table(_FOLDER, kind))
    entry["device_files"] = tuple(entry.get("device_files", ()))
    return Accelerator(kind=cast("DeviceKind", kind), **entry)


def accelerators() -> tuple[Accelerator, ...]:
    """Returns every kind that training can be asked for, sorted by name."""
    return tuple(map(accelerator, tables.names(_FOLDER)))
