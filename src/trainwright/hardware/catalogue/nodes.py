"""``64x8xh100-sxm`` as a ClusterSpec: what stands in a node and what joins nodes, from ``catalog/nodes``.

A device that no node file names stands in ``default.toml``; such numbers have the origin *default*.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from math import prod

from trainwright.core.errors import RecipeError, about
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue import tables
from trainwright.hardware.catalogue.devices import device, find_device, normalised
from trainwright.hardware.catalogue.links import is_rate, link, link_reach, parse_rate
from trainwright.hardware.catalogue.printed_names import instance, instance_devices, is_board, machine_devices
from trainwright.spec.device import ClusterSpec, DeviceSpec, LinkSpec, NodeSpec

HERE = "here"
"""The name of this machine's device in a cluster."""
HOST_MEMORY_RATIO = 2
CPU_CORES_PER_DEVICE = 8
MOST_DEVICES = 1_000_000
"""Beyond these a cluster is a slip: five times the largest that is known to train (xAI, 2025: 200,000 GPUs; recall)."""
NVME_DISK_BYTES_PER_S = 2e9
"""Of a node whose disk is not known: one NVMe disk."""
NVME_BYTES = 3_840_000_000_000
NVME_READ_BYTES_PER_S = 3.2e9
_PCIE_GENERATION = 4
DEFAULT_BUS = f"pcie{_PCIE_GENERATION}"
"""The bus of a device that no file tells it of."""
DEFAULTS = {
    "host_memory_bytes": "default: twice the memory of the node's devices, as servers of eight 80 GB devices have",
    "cpu_cores": "default: eight for each device",
    "disk_bytes_per_s": "default: one NVMe disk, sequential",
    "nvme_bytes": "default: one drive of 3.84 TB",
    "nvme_bytes_per_s": "default: a drive reads 3.2 GB/s, as a DGX-2's (arXiv 2104.07857, recall), and writes 2 GB/s",
    "bus": f"default: PCIe {_PCIE_GENERATION}",
}
"""Stand-ins for what no file says, in words for an assumption's source."""

_NODES, _HOSTED = "nodes", "devices_of"
"""The folder of such files, and the key under which each lists its devices."""
_COUNT = re.compile(r"\s*(?P<count>[+-]?[\d_.,]+)\s*[x×*]\s*", re.IGNORECASE)
_COUNT_LAST = re.compile(r"(?P<name>.+?)\s*[x×*]\s*(?P<count>\d+)", re.IGNORECASE)
_COUNT_APART = re.compile(r"(?P<count>\d+)\s+(?P<name>.+)")
"""Other ways to write it: ``h100x8``, ``8 h100``."""
_FORM = "NODES x DEVICES x NAME, for example 64x8xh100-sxm, 8xh100-sxm or h100-sxm"


def cluster(
    text: str,
    *,
    scale_up: str | None = None,
    scale_out: str | None = None,
    rails: int | None = None,
    where: str | None = None,
) -> ClusterSpec:
    """Returns the cluster that ``text`` names.

    Args:
        text: ``64x8xh100-sxm`` is 64 nodes of 8; ``8xh100-sxm`` 8 devices, ``512xh100-sxm`` 512 in full nodes;
            ``h100-sxm`` one; ``2xp4d.24xlarge`` and ``2xDGX H100`` are two such machines, with all that stands in them;
            ``28x72xgb200`` 28 racks, which are 504 hosts of 4.
        scale_up: another link inside a node: a name from ``catalog/links`` (``pcie4``, ``nvl72``, ``nvlink3-bridge``)
            or a rate per device (``300GB/s``).
        scale_out: another network between nodes: a name (``ib-ndr``) or the rate of one port (``400Gb/s``).
        rails: network ports of a node as it is written: of a rack, those of all its hosts.
        where: what ``text`` was asked for, for error lines.

    Raises:
        RecipeError: an unknown device or link (names near ones), a count that is none, more than a million devices, or
            devices that do not fill whole nodes.
    """
    counts, name = _split(text, where)
    spec = device(name, where=where)
    kind = _kind(spec.name)
    counts = _with_machines(counts, name, spec.name, kind.devices, where)
    nodes, devices = _shape(counts, kind.devices, name=spec.name, seen=text, where=where)
    hosts = _hosts(devices, kind)
    nodes, devices = nodes * hosts, devices // hosts
    node, origins = _node(spec, kind, devices)
    port = link(kind.scale_out)
    if scale_up is not None:
        with about("scale_up"):
            node = _with_scale_up(node, scale_up, where)
    if scale_out is not None:
        with about("scale_out"):
            port = _port(scale_out, port, where)
    if spec.kind == "cpu" and not is_rate(scale_out or ""):
        port = _by_software(port)
    if rails is not None:
        node = replace(node, rails=_rails(rails, where, hosts=hosts))
    asked = {"scale_up": scale_up, "scale_out": scale_out, "rails": rails}
    return ClusterSpec(
        node=node,
        nodes=nodes,
        scale_out=_share(port, node.rails or 1, devices),
        origins=origins | {name: "given" for name, value in asked.items() if value is not None},
    )


def _with_machines(counts: list[int], name: str, device: str, full: int, where: str | None) -> list[int]:
    """Returns the counts with that of a machine's devices, where what is counted is named as a machine."""
    slug, node = normalised(name), f"{full}x{device}"
    if not counts and is_board(name):
        raise RecipeError("a board of several devices", where=where, seen=repr(name), fix=f"say how many: {node}")
    rented, alone = instance(slug) is not None, len(counts) < 2
    size = (instance_devices(slug) if rented else machine_devices(slug, full)) if alone else None
    if rented and size is None:
        fix = f"name its devices: {node} is a full node of them"
        raise RecipeError("a type of instance, not a device", where=where, seen=repr(name), expected="devices", fix=fix)
    return counts if size is None else [*(counts or [1]), size]


def node_of(spec: DeviceSpec, devices: int) -> NodeSpec:
    """Returns the node that a device usually stands in, with so many of them."""
    return _node(spec, _kind(spec.name), devices)[0]


def node_size(name: str, *, where: str | None = None) -> int:
    """Devices in the node that ``name`` usually stands in.

    Raises:
        RecipeError: the catalogue does not know the device.
    """
    return _kind(device(name, where=where).name).devices


def written(nodes: int, devices: int, name: str) -> str:
    """Returns a cluster as people write it: ``l4``, ``8xh100-sxm``, ``64x8xh100-sxm``; ``cluster`` reads the same."""
    if nodes > 1 or devices > node_size(name):
        return f"{nodes}x{devices}x{name}"
    return name if devices == 1 else f"{devices}x{name}"


def names_here(text: str, *, where: str | None = None) -> bool:
    """Returns whether the device that a cluster's text names is this machine's: ``here``, ``2x2xhere``."""
    return _split(text, where)[1].lower() == HERE


def is_this_machine(text: str, *, where: str | None = None) -> bool:
    """Returns whether a cluster's text means this machine's one device: ``here``, ``1x1xhere``."""
    counts, name = _split(text, where)
    return name.lower() == HERE and not any(count > 1 for count in counts)


def several(
    machine: ClusterSpec,
    text: str,
    *,
    scale_up: str | None = None,
    scale_out: str | None = None,
    rails: int | None = None,
    where: str | None = None,
) -> ClusterSpec:
    """Returns a cluster of machines whose links nobody has listed: as many as the counts in ``text`` say.

    Args:
        machine: one of them, with one device.
        text: ``2x4xhere`` is 2 machines of 4 devices each, ``4xhere`` one of 4, ``4x1xhere`` 4 of one.
        scale_up: the link between the devices of a machine, as ``cluster`` takes it.
        scale_out: the network between machines, as ``cluster`` takes it.
        rails: network ports of a machine; None: one.
        where: what ``text`` was asked for, for error lines.

    Raises:
        RecipeError: an unknown link, a count that is none, or no link where there are several devices or machines.
    """
    counts, _ = _split(text, where)
    nodes, devices = counts if len(counts) == 2 else (1, counts[0] if counts else 1)
    asked = {"scale_up": scale_up, "scale_out": scale_out}
    for name, count, kind, example in (
        ("scale_up", devices, "devices of a machine", "pcie4 or 32GB/s"),
        ("scale_out", nodes, "machines", "ethernet-100 or 10Gb/s"),
    ):
        if count > 1 and asked[name] is None:
            raise RecipeError(
                "the link between {kind} is not known here",
                where=where,
                field=name,
                seen=repr(text),
                expected=f"its name or rate, such as {example}",
                kind=kind,
            )
    return joined(machine, nodes, devices, scale_up=scale_up, scale_out=scale_out, rails=rails, where=where)


def joined(
    machine: ClusterSpec,
    nodes: int,
    devices: int,
    *,
    scale_up: str | None,
    scale_out: str | None,
    rails: int | None = None,
    where: str | None = None,
) -> ClusterSpec:
    """Returns so many nodes of so many devices like a machine's; the rest as ``several``.

    Raises:
        RecipeError: an unknown link, or no network port.
    """
    asked = {"scale_up": scale_up, "scale_out": scale_out}
    node = replace(machine.node, devices=devices, scale_up_devices=devices, rails=_rails(rails, where))
    if scale_up is not None:
        node = _with_scale_up(node, scale_up, where)
    port = None if scale_out is None else _port(scale_out, link(_kind("").scale_out), where)
    return replace(
        machine,
        node=node,
        nodes=nodes,
        scale_out=None if port is None else _share(port, node.rails or 1, devices),
        origins={**machine.origins, **{name: "given" for name, value in asked.items() if value is not None}},
    )


def _rails(rails: int | None, where: str | None, *, hosts: int = 1) -> int | None:
    """Returns the ports of each host of a node that is written as so many ``hosts``."""
    if rails is None:
        return None
    at = {"where": where, "field": "rails", "seen": f"rails={rails}"}
    if rails < 1:
        raise RecipeError("a node needs a network port", expected="1 or more", **at)
    if rails % hosts:
        expected = f"a multiple of {hosts}"
        raise RecipeError("each of a node's {hosts} hosts needs as many ports", expected=expected, hosts=hosts, **at)
    return rails // hosts


def _split(text: str, where: str | None) -> tuple[list[int], str]:
    counts: list[int] = []
    rest = text
    while (match := _COUNT.match(rest)) is not None:
        if not match["count"].replace("_", "").isdigit() or int(match["count"].replace("_", "")) == 0:
            raise RecipeError("not a number of devices", where=where, seen=repr(match["count"]), expected=_FORM)
        counts.append(int(match["count"].replace("_", "")))
        rest = rest[match.end() :]
    if (devices := prod(counts)) > MOST_DEVICES:
        expected = f"at most {MOST_DEVICES:,} devices"
        raise RecipeError("more than any cluster has", where=where, seen=f"{devices:,} devices", expected=expected)
    if len(counts) > 2 or not rest.strip():
        raise RecipeError("cannot read a cluster", where=where, seen=repr(text), expected=_FORM)
    for form in (_COUNT_LAST, _COUNT_APART):
        match = form.fullmatch(rest.strip())
        if match is not None and find_device(match["name"]) is not None and find_device(rest) is None:
            meant = "x".join([*map(str, counts), match["count"], match["name"]])
            raise RecipeError(
                "cannot read a cluster", where=where, seen=repr(text), expected=_FORM, fix=f"did you mean {meant}?"
            )
    return counts, rest.strip()


def _shape(counts: list[int], full: int, *, name: str, seen: str, where: str | None) -> tuple[int, int]:
    """Nodes and devices per node."""
    if len(counts) == 2:
        return counts[0], counts[1]
    devices = counts[0] if counts else 1
    if devices <= full:
        return 1, devices
    if devices % full:
        whole = devices // full
        raise RecipeError(
            "{devices} devices do not fill nodes of {full}",
            where=where,
            seen=repr(seen),
            expected=f"{whole}x{full}x{name} or {whole + 1}x{full}x{name}",
            fix="write NODES x DEVICES x NAME for other nodes",
            devices=devices,
            full=full,
        )
    return devices // full, full


def _hosts(devices: int, kind: _Kind) -> int:
    """Returns how many hosts a node is that is written as a domain: a rack of 72 is 18 trays of 4; 1 for others."""
    return devices // kind.devices if kind.is_part_of_a_domain and devices % kind.devices == 0 else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """A file of ``catalog/nodes``."""

    name: str
    devices: int
    scale_out: str
    rails: int
    source: str
    recorded: str
    origin: str = "catalog"
    scale_up_devices: int | None = None
    bus: str | None = None
    host_memory_bytes: int | None = None
    cpu_cores: int | None = None
    disk_bytes_per_s: float | None = None
    nvme_bytes: int | None = None
    nvme_drives: int | None = None
    nvme_read_bytes_per_s: float | None = None
    nvme_write_bytes_per_s: float | None = None

    @property
    def is_part_of_a_domain(self) -> bool:
        """Returns whether the fastest link joins several such hosts: a rack, a pod."""
        return self.scale_up_devices is not None and self.scale_up_devices > self.devices


@cache
def _kind(device: str) -> _Kind:
    """Returns the node that lists the device; the default, which lists none, for one that no node has."""
    file = _files().get(device, _files()[""])
    return _Kind(name=file, **{key: value for key, value in tables.table(_NODES, file).items() if key != _HOSTED})


@cache
def _files() -> dict[str, str]:
    """Returns node files by device; the default under the empty name."""
    return {name: file for file, hosted in tables.listed(_NODES, _HOSTED).items() for name in hosted or ("",)}


def _node(spec: DeviceSpec, kind: _Kind, devices: int) -> tuple[NodeSpec, dict[str, str]]:
    """Returns the node with ``devices`` devices: a part of a larger one has its share of memory, cores and drives.

    More than a host has are several hosts where the fastest link joins those, and one with as much as usual elsewhere.
    """
    part = devices / kind.devices
    if not kind.is_part_of_a_domain:
        part = min(1.0, part)
    host = kind.host_memory_bytes or HOST_MEMORY_RATIO * spec.memory_bytes * kind.devices
    none = spec.unified_memory and spec.pcie_generation is None
    bus = None if none else link(kind.bus or (f"pcie{spec.pcie_generation}" if spec.pcie_generation else DEFAULT_BUS))
    drives = kind.nvme_drives or 1
    streams = max(part, 1 / drives)  # a part of a drive is as fast as all of it, while nobody else uses it
    linked = spec.link is not None and (kind.scale_up_devices is not None or link_reach(spec.link.name) is None)
    staged = link(f"{bus.name}-staged") if bus and not linked and not spec.peer_to_peer else bus
    origins = {
        "scale_up": "catalog" if linked or spec.pcie_generation else "default",
        "scale_out": kind.origin,
        "bus": "catalog" if kind.bus or spec.pcie_generation else "default",
        "rails": kind.origin,
        "host_memory_bytes": "catalog" if kind.host_memory_bytes or spec.unified_memory else "default",
        "cpu_cores": "catalog" if kind.cpu_cores or spec.kind == "cpu" else "default",
        "disk_bytes_per_s": "catalog" if kind.disk_bytes_per_s else "default",
        "nvme_bytes": "catalog" if kind.nvme_bytes else "default",
        "nvme_bytes_per_s": "catalog" if kind.nvme_read_bytes_per_s else "default",
    }
    node = NodeSpec(
        name=kind.name,
        device=spec,
        devices=devices,
        scale_up=spec.link if linked else staged,
        scale_up_devices=kind.scale_up_devices if linked and kind.scale_up_devices else devices,
        bus=bus,
        rails=max(1, round(part * kind.rails)),
        host_memory_bytes=None if spec.unified_memory else round(part * host),
        cpu_cores=max(1, round(part * (kind.cpu_cores or _cores(spec) * kind.devices))),
        disk_bytes_per_s=kind.disk_bytes_per_s or NVME_DISK_BYTES_PER_S,
        nvme_bytes=None if spec.unified_memory or spec.kind == "tpu" else round(part * (kind.nvme_bytes or NVME_BYTES)),
        nvme_read_bytes_per_s=streams * (kind.nvme_read_bytes_per_s or drives * NVME_READ_BYTES_PER_S),
        nvme_write_bytes_per_s=streams * (kind.nvme_write_bytes_per_s or drives * NVME_DISK_BYTES_PER_S),
        source=f"{kind.source}; {kind.recorded}",
    )
    return node, origins


def _cores(spec: DeviceSpec) -> int:
    """Returns a device's share of the host's cores: a processor has its own."""
    return spec.sm_count or 1 if spec.kind == "cpu" else CPU_CORES_PER_DEVICE


def _with_scale_up(node: NodeSpec, text: str, where: str | None) -> NodeSpec:
    if is_rate(text):
        latency_s = node.scale_up.latency_s if node.scale_up else 0.0
        chosen = LinkSpec(name=text, bytes_per_s=parse_rate(text, where=where), latency_s=latency_s, source="given")
        return replace(node, scale_up=chosen)
    joined = link(text, where=where)
    return replace(node, scale_up=joined, scale_up_devices=link_reach(joined.name) or node.devices)


def _port(text: str, base: LinkSpec, where: str | None) -> LinkSpec:
    if not is_rate(text):
        return link(text, where=where)
    return LinkSpec(name=text, bytes_per_s=parse_rate(text, where=where), latency_s=base.latency_s, source="given")


def _by_software(port: LinkSpec) -> LinkSpec:
    """Returns a port as processors use it: their collectives do not fill a fast one; a rate that is given stands."""
    software = link("gloo")
    if software.bytes_per_s >= port.bytes_per_s:
        return port
    name, source = f"{port.name} by {software.name}", f"{software.source}; {port.source}"
    return replace(port, name=name, bytes_per_s=software.bytes_per_s, source=source)


def _share(port: LinkSpec, rails: int, devices: int) -> LinkSpec:
    """Returns one device's share of its node's ports while all devices send."""
    name = f"{rails} x {port.name}" if rails > 1 else port.name
    return replace(port, name=name, bytes_per_s=port.bytes_per_s * rails / devices)
