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
    """What runs lose beside counted failures, as a share of all other time: planned stops, rewinds, slow nodes.

    ``overhead`` is the share of a long run on many devices, of any generation, which no run exceeds. A run of
    ``overhead_days`` has 63 % of it, an hour hardly any: nights, weekends and maintenance come with days. Beside the
    first device ``overhead_devices`` others have half of it, and few have it by the square of their number: stops
    come as often as there are devices, and the slow or broken one is looked for among as many. It never falls as
    days or devices grow. ``start_s`` is from the command to the first step. ``spread`` is the standard deviation of
    the logarithm of real over predicted time that runs add to that of steps.
    """

    overhead: float
    overhead_days: float
    overhead_devices: float
    start_s: float
    spread: float
    source: str
    recorded: str

    def overhead_share(self, steps_s: Values, devices: Values) -> Numbers:
        """Returns what a run of such steps on so many devices takes beyond all that is modelled, as a share of it."""
        others = np.maximum(np.asarray(devices, dtype=np.float64) - 1.0, 0.0) / self.overhead_devices
        long = -np.expm1(-np.asarray(steps_s) / (self.overhead_days * DAY_S))
        return np.asarray(self.overhead * long * others**2 / (others**2 + 1.0))


@cache
def read_runs() -> RunNumbers:
    """Returns the catalogue's numbers."""
    return RunNumbers(**tomllib.loads(_FILE.read_text(encoding="utf-8")))
