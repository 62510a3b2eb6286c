"""Devices as vendors print them, as clouds rent them, and as people shorten them."""

import tomllib
from importlib.resources import files

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device, device_names, find_device
from trainwright.hardware.catalogue.nodes import cluster


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("H100 80GB PCIe Gen5", "h100-pcie"),
        ("1CC H100 80GB SXM5", "h100-sxm"),
        ("Ada A6000", "rtx-6000-ada"),
        ("RTX A6000 48GB", "rtx-a6000"),
        ("p4d.24xlarge", "a100-sxm-40gb"),
        ("ml.p4de.24xlarge", "a100-sxm-80gb"),
        ("Standard_ND96asr_v4", "a100-sxm-40gb"),
        ("a3-highgpu-8g", "h100-sxm"),
        ("A100 40G", "a100-sxm-40gb"),
        ("A100-80G PCIe", "a100-pcie-80gb"),
        ("MI300X OAM", "mi300x"),
        ("Gaudi 2", "gaudi2"),
        ("HL-225", "gaudi2"),
        ("HL-325L", "gaudi3"),
        ("GB200 NVL72", "gb200"),
        ("DGX H100 80GB", "h100-sxm"),
        ("DGX1 V100 32GB", "v100-sxm-32gb"),
        ("DGX2 32GB", "v100-sxm-32gb"),
        ("DGX-1V 16G", "v100-sxm-16gb"),
        ("2080Ti", "rtx-2080-ti"),
        ("4090", "rtx-4090"),
        ("V100 16GB PCIe", "v100-pcie-16gb"),
        ("8x H100 SXM", "h100-sxm"),
        ("AMD Instinct MI250X", "mi250x"),
        ("Apple M2 Ultra", "m2-ultra"),
        ("Apple M3 Max", "m3-max"),
        ("Apple M2 CPU", "m2-cpu"),
        ("Intel(R) Data Center GPU Max 1550", "max-1550"),
        ("13th Gen Intel(R) Core(TM) i7-13700H", "core-i7-13700h"),
        ("Intel Gaudi2 HL-225", "gaudi2"),
        ("Ascend910_9391", "ascend-910c"),
        ("AMD Instinct MI250", "mi250"),
        ("RTX 4090 D", "rtx-4090-d"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("NVIDIA L20", "l20"),
        ("B200 192GB", "b200-sxm"),
        ("TPU v5 lite", "tpu-v5e"),
        ("P100-PCIE-16GB", "p100-pcie-16gb"),
        ("BM.GPU.A100-v2.8", "a100-sxm-80gb"),
        ("ecs.gn7e-c16g1.4xlarge", "a100-sxm-80gb"),
    ],
)
def test_names_as_vendors_and_clouds_print_them(printed, name):
    assert device(printed).name == name


@pytest.mark.parametrize(
    ("printed", "candidates"),
    [
        ("A100", ("a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb")),
        ("A100-SXM", ("a100-sxm-40gb", "a100-sxm-80gb")),
        ("NVIDIA GeForce RTX 4060 Ti", ("rtx-4060-ti-16gb", "rtx-4060-ti-8gb")),
        ("A100 PCIe", ("a100-pcie-40gb", "a100-pcie-80gb")),
    ],
)
def test_a_name_that_several_devices_have_asks_which(printed, candidates):
    assert find_device(printed) is None
    with pytest.raises(RecipeError, match=f"ambiguous device.*say which: {', '.join(candidates)}"):
        device(printed)


@pytest.mark.parametrize("printed", ["A100-SXM4-60GB", "80GB", "", "p5", "foo", "H100-24GB"])
def test_a_size_that_no_such_device_has_is_not_guessed(printed):
    assert find_device(printed) is None
    with pytest.raises(RecipeError, match="unknown device"):
        device(printed)


def test_every_instance_is_of_a_known_device():
    table = tomllib.loads((files("trainwright") / "catalog" / "instances.toml").read_text())
    assert set(table["devices"].values()) <= set(device_names())
    for name, size in table["sizes"].items():
        assert find_device(name) is not None and 1 <= size <= 16, name


@pytest.mark.parametrize(
    ("text", "nodes", "devices", "name"),
    [
        ("p4d.24xlarge", 1, 8, "a100-sxm-40gb"),
        ("2xp4d.24xlarge", 2, 8, "a100-sxm-40gb"),
        ("ml.p5.48xlarge", 1, 8, "h100-sxm"),
        ("ND96isr_H100_v5", 1, 8, "h100-sxm"),
        ("Standard_NC48ads_A100_v4", 1, 2, "a100-pcie-80gb"),
        ("a2-highgpu-4g", 1, 4, "a100-sxm-40gb"),
        ("g5.2xlarge", 1, 1, "a10g"),
        ("2xBM.GPU.H100.8", 2, 8, "h100-sxm"),
    ],
)
def test_an_instance_that_is_named_in_full_is_all_devices_that_stand_in_it(text, nodes, devices, name):
    machines = cluster(text)
    assert (machines.nodes, machines.node.devices, machines.device.name) == (nodes, devices, name)


@pytest.mark.parametrize(
    ("text", "devices", "name"),
    [
        ("DGX H100", 8, "h100-sxm"),
        ("2xDGX A100 80GB", 16, "a100-sxm-80gb"),
        ("2x4xDGX H100", 8, "h100-sxm"),  # so many devices of each, said
        ("DGX-2", 16, "v100-sxm-32gb"),
        ("NVIDIA GB200 NVL72", 72, "gb200"),
        ("2xgb300-nvl72", 144, "gb300"),
        ("dgx-spark-gb10", 1, "dgx-spark-gb10"),
        ("H100 NVL", 1, "h100-nvl"),
        ("8xHGX H100", 8, "h100-sxm"),
        ("DGX Spark", 1, "dgx-spark-gb10"),
    ],
)
def test_a_machine_or_rack_that_is_named_is_all_devices_that_stand_in_it(text, devices, name):
    machines = cluster(text)
    assert (machines.devices, machines.device.name) == (devices, name)


@pytest.mark.parametrize("text", ["HGX H100", "HGX_H100", "nvidia-hgx-h100"])
def test_a_board_of_several_devices_asks_how_many(text):
    with pytest.raises(RecipeError, match="a board of several devices.*say how many: 8xh100-sxm"):
        cluster(text)


@pytest.mark.parametrize("text", ["gpu_8x_h100_sxm5", "p5.96xlarge", "2x8xp4d.24xlarge", "8xml.p4d.2xlarge"])
def test_an_instance_of_unknown_size_asks_for_its_devices(text):
    with pytest.raises(RecipeError, match="a type of instance, not a device.*name its devices: 8x(a100|h100)-sxm"):
        cluster(text)


def test_a_board_of_another_size_says_why_the_nearest_is_none():
    with pytest.raises(RecipeError, match="did you mean h20.* h20 is another one: it has 96 GB; the H20-3e has 141 GB"):
        device("H20-3e")
