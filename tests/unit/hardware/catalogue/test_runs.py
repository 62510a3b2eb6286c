from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.runs import read_runs


def test_the_numbers_have_a_source_and_a_date():
    published = read_runs()
    assert published.source and published.recorded
    assert all(0 <= share < 2 for share in published.overhead.values())
    assert published.overhead_days > 0 and published.start_s > 0 and published.spread > 0


def test_the_overhead_follows_the_generation_and_has_a_default():
    published = read_runs()
    for name, kind in (
        ("h100-sxm", "hopper"),
        ("h800-sxm", "hopper"),
        ("a100-pcie-40gb", "ampere"),
        ("v100-sxm-32gb", "default"),
        ("tpu-v4", "default"),
    ):
        assert published.overhead_on(device(name)) == published.overhead[kind]
    # Published runs reach a smaller share of what benchmarks reach there.
    assert published.overhead["hopper"] > published.overhead["ampere"]
