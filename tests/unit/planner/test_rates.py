"""On the ideal machine every answer is known: work over rate, at any shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.hardware.catalogue import device as catalogue
from trainwright.planner.flops import count_flops
from trainwright.planner.rates import DIRECTIONS, Datasheet, Probed, interpolate, linear_s, muon_flops
from trainwright.planner.traffic import block_traffic
from trainwright.testing.machine import BYTES_PER_S, FLOPS_PER_S, fake_probes

PROBED = Probed(probes=fake_probes())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("backward", [False, True])
def test_probes_carry_over_to_other_shapes(shape, dtype, backward):
    flops = count_flops(shape, sequences=3, sequence_tokens=200)
    passes = 2 if backward else 1
    assert linear_s(PROBED, shape, tokens=600, dtype=dtype, backward=backward) == pytest.approx(
        passes * flops.linear / FLOPS_PER_S[dtype]
    )
    attention = shape.layers * PROBED.attention_s(
        sequences=3, heads=shape.heads, tokens=200, head_size=shape.head_size, dtype=dtype, backward=backward
    )
    assert attention == pytest.approx(passes * flops.attention / FLOPS_PER_S[dtype])
    traffic = block_traffic(shape, tokens=600, dtype=dtype)
    moved = traffic.cast_bytes + (traffic.backward_bytes if backward else traffic.forward_bytes)
    assert PROBED.blocks_rest_s(shape, tokens=600, dtype=dtype, backward=backward) == pytest.approx(moved / BYTES_PER_S)


def test_loss_updates_and_streams():
    assert PROBED.loss_rest_s(tokens=100, vocabulary=9000, dtype="bf16") == pytest.approx(16 * 900_000 / BYTES_PER_S)
    assert PROBED.adamw_s(5_000_000) == pytest.approx(28 * 5e6 / BYTES_PER_S)
    assert PROBED.muon_s(768, 256) == pytest.approx(muon_flops(768, 256) / FLOPS_PER_S["fp32"])
    assert PROBED.stream_s(1e8) == pytest.approx(1e8 / BYTES_PER_S)
    assert PROBED.stream_s(0) == 0


def test_muon_counts_five_iterations_of_three_products():
    r, c = 3, 7
    assert muon_flops(r, c) == muon_flops(c, r) == 5 * (2 * r * r * c + 2 * r**3 + 2 * r * r * c)


@given(st.integers(1, 10**6), st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-3, 1e12)), min_size=1, max_size=6))
def test_interpolation_stays_within_what_was_measured(point, known):
    places = [((place,), value) for place, value in known]
    values = [value for _, value in known]
    found = interpolate((point,), places)
    assert min(values) * (1 - 1e-9) <= found <= max(values) * (1 + 1e-9)


def test_interpolation_is_exact_where_it_was_measured_and_halfway_in_between():
    known = [((100,), 1.0), ((10_000,), 100.0)]
    assert interpolate((100,), known) == 1.0
    assert interpolate((1000,), known) == pytest.approx(10.0)
    with pytest.raises(ValueError, match="nothing was measured"):
        interpolate((1,), [])


def test_a_datasheet_is_a_roofline():
    sheet = Datasheet(device=catalogue("a100-sxm-80gb"))
    large = sheet.matmul_s("forward", tokens=8192, inputs=8192, outputs=8192, dtype="bf16")
    assert large == pytest.approx(2 * 8192**3 / (0.7 * 312e12))  # bound by arithmetic
    thin = sheet.matmul_s("forward", tokens=1, inputs=16384, outputs=16384, dtype="bf16")
    assert thin == pytest.approx(2 * (16384**2 + 2 * 16384) / (0.8 * 2039e9))  # bound by memory
    tiny = sheet.matmul_s("forward", tokens=8, inputs=8, outputs=8, dtype="bf16")
    assert tiny == pytest.approx(6e-6)  # bound by its launch
    assert {sheet.matmul_s(d, tokens=64, inputs=64, outputs=64, dtype="fp32") for d in DIRECTIONS} == {tiny}
