"""Reads ``catalog/runs.toml``: what whole runs take beyond all that is modelled, from published device-hours."""

from __future__ import annotations

import tomllib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.tables import CATALOG

Numbers = NDArray[np.float64]
Values = float | Numbers
DAY_S = 24 * 3600.0
_FILE = CATALOG / "runs.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNumbers:
    """Idle nights, changes of plan and slow weeks, as a share of all other time of a run.

    ``overhead`` is the share of a long run on many devices, of any generation. A run of ``overhead_days`` has 63 % of
    it, an hour hardly any; of the devices beside the first ``overhead_devices`` have half of it, one device has none.
    A run of ``overhead_flops`` model FLOPs has half of it too: what costs millions is rehearsed, and watched at night.
    ``start_s`` is from the command to the first step. ``spread`` is the standard deviation of the logarithm of real
    over predicted time that runs add to that of steps.
    """

    overhead: float
    overhead_days: float
    overhead_devices: float
    overhead_flops: float
    start_s: float
    spread: float
    source: str
    recorded: str

    def overhead_share(self, steps_s: Values, devices: Values, flops: Values) -> Numbers:
        """Returns what a run of such steps on so many devices takes beyond all that is modelled, as a share of it.

        ``flops`` are the model FLOPs of all steps.
        """
        others = np.maximum(np.asarray(devices, dtype=np.float64) - 1.0, 0.0)
        long = -np.expm1(-np.asarray(steps_s) / (self.overhead_days * DAY_S))
        unwatched = self.overhead_flops / (self.overhead_flops + np.asarray(flops))
        return np.asarray(self.overhead * unwatched * long * others / (others + self.overhead_devices))


@cache
def read_runs() -> RunNumbers:
    """Returns the catalogue's numbers."""
    return RunNumbers(**tomllib.loads(_FILE.read_text(encoding="utf-8")))
