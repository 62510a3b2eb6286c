import math
import re
import tomllib
from importlib.resources import files

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device, device_names, find_device, normalised


def test_every_file_is_a_device_with_sane_numbers_and_a_source():
    names = device_names()
    assert len(names) >= 84
    for name in names:
        spec = device(name)
        assert spec.name == name
        assert spec.source, name
        assert 4e9 < spec.memory_bytes < 1e12, name
        slowest = (8e10, 5e11) if spec.kind == "cpu" else (1e11, 1e12)
        assert slowest[0] < spec.bytes_per_s < 1e13, name
        assert all(slowest[1] < rate < 1e17 for rate in spec.flops_per_s.values()), name


def test_no_name_stands_for_two_devices():
    folder = files("trainwright") / "catalog" / "devices"
    tables = [tomllib.loads(entry.read_text()) for entry in folder.iterdir()]
    names = [name for table in tables for name in {table["name"], *table["aliases"]}]
    assert len(names) == len(set(names))
    for table in tables:
        assert all(find_device(alias).name == table["name"] for alias in table["aliases"])


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("l4", "l4"),
    ],
)
def test_names_that_drivers_print_are_understood(printed, name):
    assert device(printed).name == name


def test_rates_are_dense():
    a100 = device("a100-sxm-80gb")
    assert a100.flops_per_s["bf16"] == 312e12
    assert math.isclose(device("h100-sxm").flops_per_s["bf16"], 989.4e12)
    assert "bf16" not in device("t4").flops_per_s


def test_an_unknown_device_names_its_neighbours():
    with pytest.raises(RecipeError, match=r"unknown device \(seen 'h101'.*did you mean .*h100"):
        device("h101")
    with pytest.raises(RecipeError, match=r"^plan\.rent_on: unknown device"):
        device("h101", where="plan.rent_on")
    assert find_device("abacus") is None


def test_spelling_does_not_matter():
    assert normalised("NVIDIA A100 SXM4 80GB") == normalised("a100-sxm4-80gb")
    assert normalised("RTXA6000") == normalised("RTX A6000")
    assert normalised("RTX2080Ti") == normalised("rtx-2080ti")


PROCESSORS = [name for name in device_names() if device(name).kind == "cpu"]


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processors_rates_are_cores_times_clock_times_operations_a_cycle(name):
    """As its file says the factors: the sum over its kinds of cores; memory is channels x transfers x 8 bytes."""
    spec = device(name)
    for dtype, rate in spec.flops_per_s.items():
        groups = re.findall(r"(\d+)(?: \w+)? cores x ([\d.]+) GHz x (\d+)", spec.sources[dtype])
        assert math.isclose(sum(int(n) * float(ghz) * 1e9 * int(each) for n, ghz, each in groups), rate, rel_tol=1e-4)
        assert sum(int(n) for n, _, _ in groups) == spec.sm_count
        assert float(groups[0][1]) * 1e9 == spec.clock_hz
    memory = re.match(r"(\d+) channels x (\d+) MT/s x 8 bytes", spec.sources["bytes_per_s"])
    assert memory or spec.vendor == "Apple"
    if memory:
        assert math.isclose(int(memory[1]) * int(memory[2]) * 8e6, spec.bytes_per_s, rel_tol=1e-4)


def test_only_processors_with_such_instructions_have_a_bf16_rate():
    """AMX multiplies 16 times as many numbers in bf16 as AVX-512 in fp32; Ice Lake and Milan have neither."""
    sapphire = device("Xeon Platinum 8480+").flops_per_s
    assert sapphire["bf16"] == 16 * sapphire["fp32"]
    assert device("epyc-9654").flops_per_s["bf16"] == 2 * device("epyc-9654").flops_per_s["fp32"]
    for name in ("xeon-8380", "epyc-7763", "core-i7-13700h", "altra-max-m128-30"):
        assert "bf16" not in device(name).flops_per_s


FLOP_PER_CLOCK_AND_SM = {"7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192}


@pytest.mark.parametrize("name", [name for name in device_names() if device(name).vendor == "NVIDIA"])
def test_multiprocessors_times_clock_give_the_datasheets_rate(name):
    """Three printed numbers must agree; desktop cards run fp32-accumulation at half rate, some datasheets too."""
    spec = device(name)
    per_clock = FLOP_PER_CLOCK_AND_SM.get(spec.compute_capability)
    if per_clock is None or spec.clock_hz is None or "UNCERTAIN" in spec.note:
        return
    ratio = spec.flops_per_s["fp16"] / (spec.sm_count * spec.clock_hz * per_clock)
    assert 0.92 < ratio < 1.01 or 0.49 < ratio < 0.51, ratio


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("A100-80GB", "a100-sxm-80gb"),
        ("H100 80GB SXM5", "h100-sxm"),
        ("H100-80GB", "h100-sxm"),
        ("RTX 6000", "quadro-rtx-6000"),
        ("RTX 2080Ti NVLink", "rtx-2080-ti"),
        ("Ascend-910B(64GB?)", "ascend-910b3"),
        ("Trainium1(chip=2 cores)", "trainium1"),
        ("V100-32GB", "v100-sxm-32gb"),
        ("TPU-v7(Ironwood)", "tpu-v7"),
        ("GTX 1080Ti", "gtx-1080-ti"),
    ],
)
def test_names_that_papers_print_are_understood(printed, name):
    assert device(printed).name == name


def test_sizes_behind_a_name_must_be_the_devices():
    assert find_device("RTX-4090-24GB").name == "rtx-4090"
    assert find_device("H200 (141 GB)").name == "h200-sxm"
    assert find_device("RTX-4090-48GB") is None


def test_every_device_says_how_it_is_cooled_and_where_each_number_comes_from():
    for name in device_names():
        spec = device(name)
        assert spec.cooling and set(spec.cooling) <= {"fan", "passive", "liquid"}, name
        assert spec.software and spec.platform, name
        assert spec.recorded, name
        stated = {field for field in ("sm_count", "clock_hz", "l2_bytes") if getattr(spec, field) is not None}
        assert stated | {"cooling"} <= set(spec.sources), name


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480plus"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "xeon-8380"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
    ],
)
def test_processors_are_found_as_proc_cpuinfo_prints_them(printed, name):
    assert find_device(printed).name == name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("v3-8", "v3-8 is written 4xtpu-v3 (8 cores are 4 chips)"),
        ("v5p-16", "v5p-16 is written 8xtpu-v5p (16 cores are 8 chips)"),
        ("tpu-v5e-8", "tpu-v5e-8 is written 8xtpu-v5e"),
        ("v5litepod-16", "v5litepod-16 is written 16xtpu-v5e"),
        ("v6e-4", "v6e-4 is written 4xtpu-v6e"),
    ],
)
def test_a_slice_of_a_pod_is_said_how_to_write(name, written):
    with pytest.raises(RecipeError) as caught:
        device(name, where="--on")
    assert str(caught.value).endswith(f"; {written}")
