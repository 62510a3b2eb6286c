import pytest

from trainwright.core.errors import DataError
from trainwright.hardware.prices.clouds import cloud
from trainwright.hardware.prices.skypilot import read

HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice,AvailabilityZone\n"
)


def rows(text, name="aws"):
    update = read(HEADER + text, cloud(name), source="s", as_of="2026-01-02")
    priced = {
        (r["device"], r["instance"], r["kind"], r["region"]): float(r["usd_per_device_hour"]) for r in update.rows
    }
    return priced, update.refused


def test_the_price_of_an_instance_is_shared_by_its_devices_and_the_cheapest_zone_counts():
    priced, refused = rows(
        "p5.48xlarge,H100,8,192,2048,55.04,us-east-1,\"{'a': 1}\",20.0,us-east-1a\n"
        "p5.48xlarge,H100,8,192,2048,55.04,us-east-1,,16.0,us-east-1b\n"
        "c5.large,,,2,4,0.085,us-east-1,,0.03,us-east-1a\n"
        "\n"
    )
    assert priced == {
        ("h100-sxm", "p5.48xlarge", "on_demand", "us-east-1"): 6.88,
        ("h100-sxm", "p5.48xlarge", "spot", "us-east-1"): 2.0,
    }
    assert refused == {}


@pytest.mark.parametrize(
    ("price", "count", "name", "reason"),
    [
        ("0", "8", "H100", "placeholder"),
        ("-1", "8", "H100", "placeholder"),
        ("700.0", "8", "H100", "placeholder"),
        ("about 3", "8", "H100", "a price or count that is no number"),
        ("nan", "8", "H100", "a price or count that is no number"),
        ("3", "", "H100", "a price or count that is no number"),
        ("3", "0.5", "A10", "part of a device"),
        ("3", "1", "Inferentia", "device not in the catalogue"),
        ("3", "1", '"H1\n00"', "a name that cannot be printed"),
        ("3", "1", "H100\0", "a name that cannot be printed"),
    ],
)
def test_rows_that_cannot_be_true_are_counted_by_reason(price, count, name, reason):
    assert rows(f"i,{name},{count},1,1,{price},r,,,\n") == ({}, {reason: 1})


def test_google_prices_machine_and_accelerators_apart():
    priced, refused = rows(
        "a3-highgpu-8g,,,208,1872,9.46,us-central1,,2.0,us-central1-a\n"
        ",H100,8,,,33.606,us-central1,,12.0,us-central1-a\n"
        ",H100,8,,,33.606,us-east1,,,us-east1-b\n",
        "gcp",
    )
    assert priced == {
        ("h100-sxm", "a3-highgpu-8g", "on_demand", "us-central1"): pytest.approx((33.606 + 9.46) / 8, rel=1e-5),
        ("h100-sxm", "a3-highgpu-8g", "spot", "us-central1"): 14 / 8,
    }
    assert refused == {"host not included": 1}


@pytest.mark.parametrize(
    ("name", "device", "chips"),
    [
        ("tpu-v3-8", "tpu-v3", 4),
        ("tpu-v5p-128", "tpu-v5p", 64),
        ("tpu-v5litepod-16", "tpu-v5e", 16),
        ("tpu-v6e-256", "tpu-v6e", 256),
    ],
)
def test_a_slice_is_priced_by_the_chip(name, device, chips):
    priced, _ = rows(f",{name},1,,,{chips * 2.5},r,{name},,\n", "gcp")
    assert priced == {(device, name, "on_demand", "r"): 2.5}


def test_a_name_of_two_lines_is_no_instance_and_lines_may_end_as_on_old_machines():
    assert rows('"p5\n48xlarge",H100,8,1,1,3,r,,,\n') == ({}, {"a name that cannot be printed": 1})
    (row,) = read((HEADER + "p5,H100,8,1,1,16,r,,,\n").replace("\n", "\r"), cloud("aws"), source="s", as_of="d").rows
    assert (row["instance"], row["usd_per_device_hour"]) == ("p5", "2")


def test_another_file_is_refused_in_one_line():
    with pytest.raises(DataError, match=r"^s: not a price file .*no column InstanceType"):
        read("a,b\n1,2\n", cloud("aws"), source="s", as_of="d")
    with pytest.raises(DataError, match="not a price file"):
        read("", cloud("aws"), source="s", as_of="d")
