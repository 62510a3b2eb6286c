import math
import tomllib
from importlib.resources import files

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue import device, device_names, find_device, normalised


def test_every_file_is_a_device_with_sane_numbers_and_a_source():
    names = device_names()
    assert len(names) >= 84
    for name in names:
        spec = device(name)
        assert spec.name == name
        assert spec.source, name
        assert 4e9 < spec.memory_bytes < 1e12, name
        assert 1e11 < spec.bytes_per_s < 1e13, name
        assert all(1e12 < rate < 1e17 for rate in spec.flops_per_s.values()), name


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
