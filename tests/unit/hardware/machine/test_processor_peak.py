"""The peaks of known processors, worked out by hand, lie within the bounds that their facts give."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trainwright.hardware.machine.processor_peak import MOST_BUSY, SOCKET_BYTES_PER_S, processor_peak
from trainwright.testing.machine import fake_facts

AVX512 = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16")
AMX = (*AVX512, "amx_tile", "amx_bf16", "amx_int8")


def processor(features, *, name="", cores=1, logical=2, ghz=2.6, max_ghz=None, virtual=True):
    return replace(
        fake_facts(),
        cpu=name,
        cpu_features=features,
        cores=cores,
        logical_cores=logical,
        clock_hz=ghz and ghz * 1e9,
        clock_max_hz=max_ghz and max_ghz * 1e9,
        virtual=virtual,
    )


@pytest.mark.parametrize(
    ("facts", "fp32", "bf16"),
    [
        # AMD EPYC 9R14 (Zen 4), one core of two threads, boosting to 3.7 GHz: one 512-bit FMA each cycle.
        pytest.param(processor(AVX512, name="AMD EPYC"), 32 * 3.7e9, 64 * 3.7e9, id="zen4"),
        # AMD EPYC 9R45 (Zen 5), the same at 3.9 GHz: two 512-bit units.
        pytest.param(processor(AVX512, name="AMD EPYC"), 64 * 3.9e9, 128 * 3.9e9, id="zen5"),
        # AMD EPYC 7R13 (Zen 3), four cores at 3.3 GHz: two 256-bit units, no bf16.
        pytest.param(processor(AVX512[:2], cores=4, logical=8), 4 * 32 * 3.3e9, None, id="zen3"),
        # Xeon Platinum 8488C, one core shown as two processors, 3.0 GHz: AMX.
        pytest.param(processor(AMX, cores=2), 64 * 3.0e9, 1024 * 3.0e9, id="one core of sapphire rapids"),
        # The same where the two processors are two cores.
        pytest.param(processor(AMX, cores=2), 2 * 64 * 2.6e9, 2 * 512 * 2.6e9, id="two cores of sapphire rapids"),
        # Core i7-9750H, six cores of 2.6 GHz nominal, 4.0 GHz on all of them.
        pytest.param(
            processor(AVX512[:2], cores=6, logical=12, max_ghz=4.5, virtual=False), 6 * 32 * 4.0e9, None, id="laptop"
        ),
    ],
)
def test_the_peak_of_a_known_processor_lies_within_the_bounds(facts, fp32, bf16):
    peak = processor_peak(facts).flops_per_s
    assert peak["fp32"].low <= fp32 <= peak["fp32"].high
    assert bf16 is None or peak["bf16"].low <= bf16 <= peak["bf16"].high


def test_bounds_multiply_and_the_middle_is_their_geometric_mean():
    """Cores 1 to 2, clock 0.9 to 1.5 of nominal, 512 to 1024 operations in a cycle."""
    rate = processor_peak(processor(AMX, cores=2)).flops_per_s["bf16"]
    assert rate.low == pytest.approx(1 * 0.9 * 2.6e9 * 512)
    assert rate.high == pytest.approx(2 * 1.5 * 2.6e9 * 1024)
    assert rate.mid == pytest.approx(math.sqrt(rate.low * rate.high))


def test_what_is_known_has_no_width():
    """One core that is a core, with AMX: only its clock is open."""
    rate = processor_peak(processor(AMX, max_ghz=3.9)).flops_per_s["fp32"]
    assert (rate.low, rate.high) == pytest.approx((64 * 0.9 * 2.6e9, 64 * 3.9e9))


def test_an_unknown_clock_and_an_unknown_instruction_set_are_wide():
    rate = processor_peak(processor((), ghz=None)).flops_per_s["fp32"]
    assert (rate.low, rate.high) == pytest.approx((8 * 2e9, 8 * 4e9))


def test_other_programs_lower_the_lower_bound_alone():
    alone, shared = (processor_peak(replace(processor(AMX), cpu_busy=busy)) for busy in (0.0, 0.3))
    assert shared.flops_per_s["bf16"].low == pytest.approx(0.7 * alone.flops_per_s["bf16"].low)
    assert shared.flops_per_s["bf16"].mid == alone.flops_per_s["bf16"].mid
    assert shared.spread[1] > alone.spread[1]
    crowded = processor_peak(replace(processor(AMX), cpu_busy=1.0))
    assert crowded.bytes_per_s.low == pytest.approx((1 - MOST_BUSY) * alone.bytes_per_s.low)


def test_bandwidth_ends_at_the_sockets():
    assert processor_peak(processor(AVX512, cores=96, logical=192)).bytes_per_s.high == SOCKET_BYTES_PER_S
