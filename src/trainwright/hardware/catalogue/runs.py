"""Reads ``catalog/runs.toml``: what whole runs take beyond all that is modelled, from published device-hours."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from trainwright.hardware.catalogue.efficiency import generation
from trainwright.spec.device import DeviceSpec

_FILE = files("trainwright") / "catalog" / "runs.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNumbers:
    """Idle nights, changes of plan and slow weeks, as a share of a run's time.

    ``overhead`` is that share in a long run, by the device's generation: what people, hosts and networks lose does not
    shrink as devices become faster, so that it is a larger share of the newer ones' time. A run of ``overhead_days``
    has 63 % of it, an hour hardly any: ``overhead (1 - exp(-days / overhead_days))``. ``start_s`` is from the command
    to the first step. ``spread`` is the standard deviation of the logarithm of real over predicted time that runs add
    to that of steps.
    """

    overhead: Mapping[str, float]
    overhead_days: float
    start_s: float
    spread: float
    source: str
    recorded: str

    def overhead_on(self, device: DeviceSpec) -> float:
        """Returns the overhead on that device; the default where no trainings on its generation were published."""
        return self.overhead.get(generation(device), self.overhead["default"])


@cache
def read_runs() -> RunNumbers:
    """Returns the catalogue's numbers."""
    return RunNumbers(**tomllib.loads(_FILE.read_text(encoding="utf-8")))
