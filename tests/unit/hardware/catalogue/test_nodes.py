import tomllib
from importlib.resources import files

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device, device_names
from trainwright.hardware.catalogue.links import link
from trainwright.hardware.catalogue.nodes import cluster, names_here, node_of, node_size, several, written
from trainwright.spec.device import ClusterSpec, NodeSpec


def levels(text, **options):
    return [(level.devices, level.link.name) for level in cluster(text, **options).levels]


@pytest.mark.parametrize(
    ("text", "nodes", "devices"),
    [
        ("64x8xh100-sxm", 64, 8),
        ("64 x 8 x H100", 64, 8),
        ("8xh100", 1, 8),
        ("h100", 1, 1),
        ("2x8xa100-80gb", 2, 8),
        ("16,384xh100", None, None),
        ("16_384xh100", 2048, 8),
        ("8xgb200", 2, 4),
        ("1x16xa100-40gb", 1, 16),
        ("NVIDIA A100-SXM4-80GB", 1, 1),
    ],
)
def test_what_people_write(text, nodes, devices):
    if nodes is None:
        with pytest.raises(RecipeError, match="not a number of devices"):
            cluster(text)
        return
    machines = cluster(text)
    assert (machines.nodes, machines.node.devices) == (nodes, devices)
    assert machines.devices == nodes * devices


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0x8xh100", "not a number of devices (seen '0'"),
        ("100000000xh100", "more than any cluster has (seen 100,000,000 devices, expected at most 1,000,000"),
        ("125001x8xhere", "more than any cluster has"),
        ("-1xh100", "not a number of devices (seen '-1'"),
        ("1.5xh100", "not a number of devices (seen '1.5'"),
        ("8x", "cannot read a cluster"),
        ("", "cannot read a cluster"),
        ("2x2x2xh100", "cannot read a cluster"),
        ("12xh100", "12 devices do not fill nodes of 8 (seen '12xh100', expected 1x8xh100-sxm or 2x8xh100-sxm)"),
        ("8xh101", "unknown device (seen 'h101'"),
    ],
)
def test_what_is_no_cluster_says_why(text, problem):
    with pytest.raises(RecipeError) as caught:
        cluster(text, where="--on")
    assert str(caught.value).startswith(f"--on: {problem}")


def test_one_level_inside_a_node_and_one_between_nodes():
    assert levels("64x8xh100-sxm") == [(8, "nvlink4"), (512, "8 x ib-ndr")]
    assert levels("8xh100-sxm") == [(8, "nvlink4")]
    assert levels("h100-sxm") == []
    assert cluster("64x8xh100-sxm").scale_out.bytes_per_s == 400e9 / 8


def test_a_rack_and_a_pod_reach_beyond_their_nodes():
    assert levels("9x4xgb200") == [(36, "nvl72")]
    assert levels("36x4xgb200") == [(72, "nvl72"), (144, "4 x ib-ndr")]
    assert levels("1024xtpu-v5p") == [(1024, "ici-v5p")]


@pytest.mark.parametrize(
    ("racks", "trays"),
    [
        ("28x72xgb200", "504x4xgb200"),
        ("2x72xgb300", "36x4xgb300"),
        ("1x8xgb200", "2x4xgb200"),
        ("4x288xgb200", "288x4xgb200"),
        ("1x384xascend-910c", "48x8xascend-910c"),
        ("1x256xtpu-v5e", "64x4xtpu-v5e"),
    ],
)
def test_nodes_written_as_racks_or_pods_are_their_hosts(racks, trays):
    assert cluster(racks) == cluster(trays)


def test_ports_of_a_rack_are_those_of_all_its_trays():
    assert cluster("2x72xgb200", rails=18) == cluster("36x4xgb200", rails=1)
    with pytest.raises(RecipeError, match="each of a node's 18 hosts needs as many ports.*a multiple of 18"):
        cluster("2x72xgb200", rails=4)


def test_devices_that_fill_no_whole_hosts_of_a_rack_have_their_share_all_the_same():
    tray, six = cluster("4xgb200").node, cluster("1x6xgb200")
    assert (six.node.devices, six.node.rails, six.node.cpu_cores) == (6, 6, 1.5 * tray.cpu_cores)
    assert six.node.host_memory_bytes == 1.5 * tray.host_memory_bytes
    assert six.scale_out.bytes_per_s == 50e9


def test_a_server_larger_than_usual_has_no_more_than_the_usual_one():
    usual, large = cluster("8xh100").node, cluster("1x16xh100").node
    assert (large.devices, large.rails, large.host_memory_bytes) == (16, usual.rails, usual.host_memory_bytes)


def test_pairs_and_groups_smaller_than_a_node_go_on_over_its_bus():
    assert levels("2x8xascend-910") == [(4, "hccs-910"), (8, "pcie4"), (16, "8 x roce-100")]
    bridged = levels("8xa100-pcie-80gb", scale_up="nvlink3-bridge-a100")
    assert bridged == [(2, "nvlink3-bridge-a100"), (8, "pcie4")]


def test_a_bridge_is_never_assumed_and_cards_for_desktops_have_no_peer_to_peer():
    assert levels("4xa100-pcie-80gb") == [(4, "pcie4")]
    assert levels("4xrtx-4090") == [(4, "pcie4-staged")]
    assert cluster("4xrtx-4090").node.bus.name == "pcie4"


def test_devices_share_fewer_ports():
    assert cluster("2x8xv100").scale_out.bytes_per_s == 4 * 100e9 / 8 / 8
    half = cluster("2x4xh100")
    assert half.node.rails == 4
    assert half.scale_out.bytes_per_s == 400e9 / 8
    assert half.node.host_memory_bytes == cluster("8xh100").node.host_memory_bytes / 2


def test_the_topology_can_be_asked_for():
    chosen = cluster("4x8xh100", scale_up="pcie5", scale_out="400Gb/s", rails=4)
    assert [(level.devices, level.link.name) for level in chosen.levels] == [(8, "pcie5"), (32, "4 x 400Gb/s")]
    assert chosen.scale_out.bytes_per_s == 4 * 50e9 / 8
    assert {chosen.origins[name] for name in ("scale_up", "scale_out", "rails")} == {"given"}
    assert chosen.origins["bus"] == "catalog"
    assert levels("64x8xh100", scale_up="nvl72") == [(72, "nvl72"), (512, "8 x ib-ndr")]
    assert cluster("8xh100", scale_up="200GB/s").node.scale_up.bytes_per_s == 200e9
    with pytest.raises(RecipeError, match="network port"):
        cluster("8xh100", rails=0)


def test_nodes_have_drives_and_a_part_of_one_its_share():
    full, half = cluster("8xh100-sxm").node, cluster("4xh100-sxm").node
    assert full.nvme_bytes == 8 * 3_840_000_000_000 == 2 * half.nvme_bytes
    assert (full.nvme_read_bytes_per_s, full.nvme_write_bytes_per_s) == (8 * 3.2e9, 8 * 2e9)
    assert half.nvme_read_bytes_per_s == 4 * 3.2e9
    assert (cluster("8xh100-sxm").origins["nvme_bytes"], cluster("8xa30").origins["nvme_bytes"]) == (
        "catalog",
        "default",
    )
    assert cluster("8xa30").node.nvme_bytes == 3_840_000_000_000
    assert cluster("m3-max").node.nvme_bytes is None and cluster("tpu-v5p").node.nvme_bytes is None


def test_defaults_say_that_they_are_defaults():
    machines = cluster("2x8xa30")
    assert machines.origins["scale_out"] == machines.origins["host_memory_bytes"] == "default"
    assert machines.node.host_memory_bytes == 2 * 8 * machines.device.memory_bytes
    assert cluster("m4-max").node.host_memory_bytes is None


def test_every_device_has_a_cluster_and_every_node_file_known_devices():
    for name in device_names():
        machines = cluster(f"2x2x{name}")
        assert machines.levels[-1].devices == 4, name
        assert machines.node.source, name
    named = [
        host
        for entry in (files("trainwright") / "catalog" / "nodes").iterdir()
        for host in tomllib.loads(entry.read_text())["devices_of"]
    ]
    assert len(named) == len(set(named)), "a device stands in two node files"
    for host in named:
        assert device(host).name == host


def test_processors_stand_two_to_a_server_and_their_cores_and_memory_are_the_hosts():
    pair, laptops = cluster("2xxeon-8480plus"), cluster("4x1xcore-i7-13700h")
    assert (pair.nodes, pair.node.devices, pair.node.cpu_cores, pair.node.host_memory_bytes) == (1, 2, 112, None)
    assert [(each.devices, each.link.name) for each in pair.levels] == [(2, "gloo")]
    assert [(each.devices, each.link.name) for each in laptops.levels] == [(4, "ethernet-1")]
    assert laptops.levels[0].link.bytes_per_s == 0.125e9


def test_software_sets_the_rate_between_processors_unless_another_is_given():
    over = {name: cluster("4x2xepyc-9654", scale_out=name).levels[-1].link for name in ("ethernet-100", "12.5GB/s")}
    assert over["ethernet-100"].bytes_per_s == link("gloo").bytes_per_s / 2
    assert over["ethernet-100"].name == "ethernet-100 by gloo"
    assert over["12.5GB/s"].bytes_per_s == 12.5e9 / 2
    assert cluster("2xepyc-9654", scale_up="20GB/s").levels[0].link.bytes_per_s == 20e9
    assert cluster("2x8xh100-sxm", scale_out="ib-ndr").levels[-1].link.name.endswith("ib-ndr")


def test_a_whole_node_has_so_many():
    assert {name: node_size(name) for name in ("h100", "gb200", "Trainium1(chip=2 cores)", "a30")} == {
        "h100": 8,
        "gb200": 4,
        "Trainium1(chip=2 cores)": 16,
        "a30": 8,
    }
    with pytest.raises(RecipeError, match="--on: unknown device"):
        node_size("h101", where="--on")


@pytest.mark.parametrize("beside", [{"scale_up": "nvlink9"}, {"scale_out": "40"}, {"rails": 0}])
def test_errors_of_links_name_their_own_field(beside):
    (field,) = beside
    with pytest.raises(RecipeError, match=f"^{field}: "):
        cluster("8xh100", **beside)
    with pytest.raises(RecipeError, match="^row 3: "):
        cluster("8xh100", where="row 3", **beside)


@pytest.mark.parametrize(
    ("text", "meant"), [("h100x8", "8xh100"), ("8 h100", "8xh100"), ("2x8 a100-80gb", "2x8xa100-80gb")]
)
def test_a_count_in_another_place_is_understood_and_not_guessed(text, meant):
    with pytest.raises(RecipeError, match=rf"cannot read a cluster .*did you mean {meant}\?"):
        cluster(text)


ALONE = ClusterSpec(node=NodeSpec(device=device("rtx-4090"), devices=1, host_memory_bytes=64 << 30))


@pytest.mark.parametrize(
    ("text", "nodes", "devices"), [("here", 1, 1), ("2xhere", 1, 2), ("3x1xhere", 3, 1), ("2x4xHere", 2, 4)]
)
def test_machines_like_this_one_are_counted(text, nodes, devices):
    assert names_here(text) and not names_here("8xh100-sxm")
    many = several(ALONE, text, scale_up="pcie4", scale_out="100Gb/s", rails=2)
    assert (many.nodes, many.node.devices, many.device) == (nodes, devices, ALONE.device)
    assert many.scale_out.bytes_per_s == pytest.approx(2 * 12.5e9 / devices)  # two ports, shared by a machine's devices
    assert many.node.scale_up.name == "pcie4" and many.origins["scale_up"] == "given"


@pytest.mark.parametrize(
    ("text", "links", "missing"),
    [
        ("2xhere", {}, "scale_up"),
        ("2x1xhere", {"scale_up": "pcie4"}, "scale_out"),
        ("2x2xhere", {"scale_out": "10Gb/s"}, "scale_up"),
    ],
)
def test_links_of_this_machine_are_asked_for_where_there_are_several(text, links, missing):
    with pytest.raises(RecipeError, match="is not known here") as caught:
        several(ALONE, text, **links)
    assert caught.value.field == missing
    assert several(ALONE, "1x1xhere").devices == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ((1, 1, "l4"), "l4"),
        ((1, 8, "h100-sxm"), "8xh100-sxm"),
        ((64, 8, "h100-sxm"), "64x8xh100-sxm"),
        ((4, 1, "gh200-96gb"), "4x1xgh200-96gb"),
        # More than a usual node has: ``16xa100`` would be two of them.
        ((1, 16, "a100-sxm-40gb"), "1x16xa100-sxm-40gb"),
    ],
)
def test_a_cluster_is_written_as_shortly_as_it_is_read_again(size, text):
    assert written(*size) == text
    found = cluster(text)
    assert (found.nodes, found.node.devices, found.device.name) == size


@pytest.mark.parametrize("devices", [1, 4])
def test_a_node_of_a_device_is_that_of_its_cluster(devices):
    assert node_of(device("h100-sxm"), devices) == cluster(f"1x{devices}xh100-sxm").node
