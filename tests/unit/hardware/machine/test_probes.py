from trainwright.testing.machine import BYTES_PER_S, FLOPS_PER_S, fake_probes


def test_rates_follow_from_times():
    probes = fake_probes()
    assert all(abs(probe.flops_per_s / FLOPS_PER_S[probe.dtype] - 1) < 1e-9 for probe in probes.matmul)
    assert probes.peak_flops_per_s("bf16") == max(p.flops_per_s for p in probes.matmul if p.dtype == "bf16")
    assert probes.peak_flops_per_s("fp8") is None
    assert probes.dtypes() == ("fp32", "bf16")


def test_the_flat_form_takes_bandwidth_beyond_the_caches():
    flat = fake_probes().flat()
    assert abs(flat["memory_bytes_per_s"] / BYTES_PER_S - 1) < 1e-9
    assert all(isinstance(value, float) for value in flat.values())
