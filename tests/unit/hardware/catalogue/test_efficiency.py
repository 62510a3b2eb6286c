from dataclasses import fields

import pytest

from trainwright.hardware.catalogue.devices import device, device_names
from trainwright.hardware.catalogue.efficiency import DEFAULT, generation, matmul_reach, matmul_share, read_efficiency
from trainwright.hardware.catalogue.stacks import stack, stack_names
from trainwright.spec.device import DeviceSpec
from trainwright.spec.efficiency import Efficiency


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gtx-1080-ti", "pascal"),
        ("v100-sxm-32gb", "volta"),
        ("t4", "volta"),
        ("a100-sxm-80gb", "ampere"),
        ("rtx-3090", "ampere-rtx"),
        ("a40", "ampere-rtx"),
        ("l40s", "ada"),
        ("rtx-4090", "ada"),
        ("h100-pcie", "hopper"),
        ("b200-sxm", "blackwell"),
        ("gb300", "blackwell"),
        ("rtx-5090", "blackwell"),
        ("mi300x", "rocm"),
        ("tpu-v5p", "tpu"),
        ("ascend-910b3", "npu"),
        ("gaudi3", "hpu"),
        ("trainium2", "neuron"),
        ("m4-max", "mps"),
    ],
)
def test_devices_whose_kernels_are_tuned_alike_are_one_generation(name, expected):
    assert generation(device(name)) == expected


def test_every_device_has_a_generation():
    for name in device_names():
        assert generation(device(name)), name


def test_a_cuda_device_of_unknown_capability_counts_as_the_oldest():
    unknown = DeviceSpec(name="x", kind="cuda", vendor="", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
    assert generation(unknown) == "pascal"


def test_shares_of_rates_are_shares_and_multiples_are_multiples():
    rates = read_efficiency()
    for name in ("products", "attention"):
        table = getattr(rates, name)
        assert DEFAULT in table, name
        assert all(0.1 < share < 1 for share in table.values()), name
    assert rates.precisions[DEFAULT] == 1
    assert 0.5 < rates.bandwidth <= 1 and 0.3 < rates.unaligned <= 1 and 0.9 < rates.tiles < 1.1
    assert rates.operands >= 0 and rates.update >= 1 and rates.loss > 1 > rates.fused_loss > 0
    # What real code moves between products is never much less than fully fused operations would.
    assert all(multiple > 0.8 for multiple in rates.traffic.values())
    assert rates.traffic["eager"] > rates.traffic["compiled"] >= 0.9
    assert 1e-6 < rates.launch_s < 1e-4
    assert 0.8 < rates.adapted < 10


def test_every_kind_of_doubt_widens_and_generations_without_rows_are_not_seen():
    rates = read_efficiency()
    assert {"source", "generation", "adapters", "experts"} <= rates.doubt.keys()
    assert all(0 < deviation < 1 for deviation in rates.doubt.values())
    assert {"ampere", "hopper"} <= set(rates.seen) and not {"cpu", "default"} & set(rates.seen)


def test_every_number_was_fitted_or_is_a_default_of_that_name():
    assert {field.name for field in fields(Efficiency)} >= {"bubble", "tensor", "sharded", "gradients", "bus"}
    for name in ("tensor", "context", "expert", "sharded", "gradients", "bubble", "selective"):
        assert 0 < getattr(read_efficiency(), name) < 3, name
    rates = read_efficiency()
    for table in (rates.bus, rates.bus_sharing):
        assert set(table) == {"peer", "staged"} and all(0 < value < 3 for value in table.values())
    assert rates.bus_sharing["staged"] > rates.bus_sharing["peer"], "all of a host share its memory, few share a switch"
    assert rates.attention["ampere-flash-1"] < rates.attention["ampere-flash-2"]
    assert rates.attention["hopper-flash-2"] < rates.attention["hopper-cudnn"]


def test_matrix_products_alone_reach_what_was_measured_on_a_device_and_elsewhere_what_its_generation_does():
    """stas00/ml-engineering, maximum achievable matmul FLOPS in bf16: 418.7 of 432 TFLOP/s, 1,243 of 1,677."""
    shares = read_efficiency().matmul
    gaudi2, gaudi3 = (matmul_reach(device(name), shares) for name in ("gaudi2", "gaudi3"))
    assert gaudi2 / gaudi3 == pytest.approx(418.7 / 432 * 1677 / 1243, rel=0.01)
    assert matmul_reach(device("gaudi2"), {"hpu": 418.7 / 432 / 2}) == pytest.approx(2, rel=1e-3)
    assert matmul_reach(device("l40s"), shares) == matmul_reach(device("h20"), shares) == 1
    for name in device_names():
        share = matmul_share(device(name))
        assert share is None or (0 < share < 1 and "matmul_flops_per_s" in device(name).sources), name


@pytest.mark.parametrize(
    ("name", "share"),
    [("h100-sxm", 0.803), ("b200-sxm", 0.776), ("gb200", 0.729), ("mi300x", 0.511), ("mi355x", 0.622)],
)
def test_the_share_that_products_reach_is_of_the_catalogues_own_peak(name, share):
    """The same table takes 2,300 TFLOP/s for MI355X, whose peak is 2,516: 1,565 of them are 62.2 %, and not 68.0 %."""
    assert matmul_share(device(name)) == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize(("name", "as_measured"), [("mi350x", "mi355x"), ("gb300", "b300-sxm")])
def test_devices_of_the_same_chips_reach_the_same_share_of_their_peaks(name, as_measured):
    assert matmul_share(device(name)) == pytest.approx(matmul_share(device(as_measured)), rel=1e-3)


@pytest.mark.parametrize("name", stack_names())
def test_no_software_leaves_more_of_its_messages_exposed_than_all(name):
    general, time = read_efficiency(), stack(name).time
    assert 0 < general.tensor * time.tensor <= 1.005  # written to three digits
    assert 0 < general.context <= 1 and 0 < general.expert <= 1
