"""The clock of the processor's cores."""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.hardware.machine.processor import cpu_model, cpuinfo

_FREQUENCIES = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def cpu_clock_hz(frequencies: Path = _FREQUENCIES) -> tuple[float | None, float | None]:
    """Returns the nominal and the highest clock of a core in hertz; None where the system does not tell.

    ``cpu MHz`` of a virtual machine is its nominal clock; of a real one it is the clock at this moment, so that the
    governor's files and the clock in the processor's name come first.
    """
    base = _kilohertz(frequencies / "base_frequency")
    named = re.search(r"@\s*([0-9.]+)\s*GHz", cpu_model())
    nominal = base or (float(named[1]) * 1e9 if named else None) or _cpuinfo_hz()
    return nominal, _kilohertz(frequencies / "cpuinfo_max_freq")


def _cpuinfo_hz() -> float | None:
    for line in cpuinfo():
        name, _, value = line.partition(":")
        if name.strip() == "cpu MHz":
            return float(value) * 1e6
    return None


def _kilohertz(path: Path) -> float | None:
    text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
    return int(text) * 1e3 if text.isdigit() else None
