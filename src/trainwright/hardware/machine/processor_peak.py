"""The peak rates of a processor, computed from its facts: peaks of matrix products and memory bandwidth.

peak = cores x clock x floating point operations of one core in one cycle. Each factor has bounds where the facts leave
it open; the bounds of a product are the products of bounds, its middle is their geometric mean. Other programs' share
of the processors lowers the lower bound alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwright.core.frozen import dataclass
from trainwright.hardware.machine.facts import MachineFacts
from trainwright.spec.plan import Interval

Bounds = tuple[float, float]

FP32_PER_CYCLE: Mapping[str, Bounds] = {
    "amx_tile": (64, 64),
    "avx512f": (32, 64),
    "avx2": (16, 32),
    "sve": (16, 32),
    "asimd": (16, 32),
    "neon": (8, 32),
}
"""fp32 operations of one core in one cycle by instruction set, the widest first: units x lanes x 2 (multiply, add).

* AMX: every processor with it has two 512-bit FMA units (Intel, 4th Gen Xeon Scalable).
* AVX-512: two units (Xeon Gold 6xxx and Platinum, Zen 5), or one, or two of half the width (Xeon Silver, Zen 4).
  Intel 64 Optimization Reference Manual 248966, "Servers with a single FMA unit"; AMD Software Optimization Guides
  57647 (Zen 4) and 58455 (Zen 5), floating point unit.
* AVX2: two 256-bit units; half of that on Zen 1 and on efficiency cores (AMD 55723; Intel 248966, Gracemont).
* Arm: two or four 128-bit pipes (Software Optimization Guides of Neoverse N1, N2, V1 and V2).
"""
SSE_PER_CYCLE: Bounds = (8, 8)
"""Four lanes, one multiplication and one addition in a cycle."""

BF16_PER_CYCLE: Mapping[str, Bounds] = {"amx_bf16": (512, 1024)}
"""TDPBF16PS: 16 x 16 x 32 multiply-adds in 16 cycles (Intel 248966, chapter "Intel AMX"); half where the tiles come
from beyond the first cache, as they do for layers."""

BF16_PER_FP32: Mapping[str, Bounds] = {"avx512_bf16": (1, 2), "bf16": (2, 4)}
"""bf16 operations for each fp32 operation. VDPBF16PS multiplies twice as many numbers, on one or both units of Intel's
processors (uops.info); Arm's BFDOT and BFMMLA two and four times as many."""
AMD_BF16_PER_FP32: Bounds = (2, 2)
"""On every unit that multiplies fp32 (AMD 57647, 58455)."""
EMULATED_BF16: Bounds = (0.1, 0.5)
"""The same without such instructions: torch converts to fp32 and back."""

CLOCK_OF_NOMINAL: Bounds = (0.9, 1.5)
"""Clock under wide instructions on all cores, and of few cores that may boost, as a multiple of the nominal clock: Xeon
Platinum 8480+ is sold with 2.0 GHz nominal and 3.0 on all cores, EPYC 9654 with 2.4 and 3.55; AMX on all cores may fall
below nominal."""
UNKNOWN_CLOCK_HZ: Bounds = (2.0e9, 4.0e9)
"""Bounds where the system does not say: server base to desktop boost."""

CORE_BYTES_PER_S: Bounds = (6e9, 25e9)
"""Bandwidth of one core: limited by its outstanding misses on large servers, more on Zen and desktops
(sites.utexas.edu/jdm4372, "Single-core memory bandwidth")."""
SOCKET_BYTES_PER_S = 400e9
"""Twelve channels of DDR5-4800 deliver no more than this (460.8 GB/s on paper)."""

MOST_BUSY = 0.5
"""Against as many threads of other programs, a scheduler gives training half of the processors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorPeak:
    """Dense matrix peaks by dtype in FLOP/s and memory bandwidth in bytes/s, each with its bounds."""

    flops_per_s: Mapping[str, Interval]
    bytes_per_s: Interval
    source: str

    @property
    def spread(self) -> Bounds:
        """Time at the highest and at the lowest rates, relative to the time at the middle ones.

        Of the fastest dtype, whose products take most of a step.
        """
        fastest = max(self.flops_per_s.values(), key=lambda rate: rate.mid)
        return fastest.mid / fastest.high, fastest.mid / fastest.low


def processor_peak(facts: MachineFacts) -> ProcessorPeak:
    """Returns the peaks of a machine's processor, computed from its facts; nothing is measured."""
    cores, clock_hz = _cores(facts), _clock_hz(facts)
    fp32 = _fp32_per_cycle(facts)
    per_cycle = {"fp32": fp32, "bf16": _bf16_per_cycle(facts, fp32)}
    idle = 1.0 - min(facts.cpu_busy, MOST_BUSY)
    low, high = _product(cores, CORE_BYTES_PER_S)
    return ProcessorPeak(
        flops_per_s={dtype: _interval(_product(cores, clock_hz, each), idle) for dtype, each in per_cycle.items()},
        bytes_per_s=_interval((min(low, SOCKET_BYTES_PER_S), min(high, SOCKET_BYTES_PER_S)), idle),
        source=(
            f"nothing was measured: {_text(cores)} cores at {_text((clock_hz[0] / 1e9, clock_hz[1] / 1e9))} GHz, "
            "operations per cycle of their instruction sets"
        ),
    )


def _cores(facts: MachineFacts) -> Bounds:
    """A virtual machine's processors are hyper-threads of a host that often does not say so: two may be one core."""
    if facts.virtual and facts.cores == facts.logical_cores:
        return max(1.0, facts.cores / 2), float(facts.cores)
    return float(facts.cores), float(facts.cores)


def _clock_hz(facts: MachineFacts) -> Bounds:
    if facts.clock_hz is None:
        return UNKNOWN_CLOCK_HZ
    low, high = (share * facts.clock_hz for share in CLOCK_OF_NOMINAL)
    return low, facts.clock_max_hz or high


def _fp32_per_cycle(facts: MachineFacts) -> Bounds:
    return next((each for name, each in FP32_PER_CYCLE.items() if name in facts.cpu_features), SSE_PER_CYCLE)


def _bf16_per_cycle(facts: MachineFacts, fp32: Bounds) -> Bounds:
    for name, each in BF16_PER_CYCLE.items():
        if name in facts.cpu_features:
            return each
    if "avx512_bf16" in facts.cpu_features and "AMD" in facts.cpu:
        return _product(fp32, AMD_BF16_PER_FP32)
    ratio = next((each for name, each in BF16_PER_FP32.items() if name in facts.cpu_features), EMULATED_BF16)
    return _product(fp32, ratio)


def _product(*factors: Bounds) -> Bounds:
    return math.prod(low for low, _ in factors), math.prod(high for _, high in factors)


def _interval(bounds: Bounds, idle: float) -> Interval:
    low, high = bounds
    return Interval(low=low * idle, mid=math.sqrt(low * high), high=high)


def _text(bounds: Bounds) -> str:
    low, high = bounds
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
