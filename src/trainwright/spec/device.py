"""Devices, links, nodes, clusters and their prices: what a run happens on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NamedTuple

from trainwright.core.frozen import dataclass

DeviceKind = Literal["cuda", "rocm", "tpu", "cpu", "npu", "mps", "xpu", "hpu", "neuron"]
PriceKind = Literal["on_demand", "spot", "reserved"]
Cooling = Literal["fan", "passive", "liquid"]
"""Its own fan, a server's airflow, or a cold plate."""

PLATFORMS: Mapping[DeviceKind, str] = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "tpu": "XLA",
    "npu": "CANN",
    "neuron": "Neuron",
    "mps": "Metal",
    "xpu": "oneAPI",
    "hpu": "SynapseAI",
    "cpu": "CPU",
}
"""The vendor's software under every framework on that kind of device."""

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one stored element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkSpec:
    """One direction of a connection, for one device of those that it joins.

    ``bytes_per_s`` is the raw rate while all devices send at once; ``latency_s`` one step of a ring collective, the
    library's share included.
    """

    name: str
    bytes_per_s: float
    latency_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a device costs for an hour; ``as_of`` is a date, or the commit of the price list in ``source``.

    ``date`` is the last day (ISO) on which that can have been written; empty where nobody knows.
    """

    usd_per_device_hour: float
    kind: PriceKind
    provider: str
    region: str
    as_of: str
    source: str
    instance: str = ""
    date: str = ""
    doubt: str = ""
    """Why it may not be what such a device can be had for; empty: nothing speaks against it."""
    idle_devices: int = 0
    """What stands idle of the instance that it is of: ``usd_per_device_hour`` of a device in use pays for those too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSpec:
    """An accelerator or a CPU socket as one device.

    ``flops_per_s`` holds *dense* peak rates by dtype; a missing dtype means unknown or unsupported, never a fallback.
    ``source`` is where the numbers come from; ``sources`` names another one for single fields.
    """

    name: str
    kind: DeviceKind
    vendor: str
    memory_bytes: int
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    tdp_w: float | None = None
    year: int | None = None
    link: LinkSpec | None = None
    compute_capability: str | None = None
    software: tuple[str, ...] = ()
    source: str = ""
    note: str = ""
    pcie_generation: int | None = None
    visible_bytes: int | None = None
    """Memory that the driver shows, where it is less than the board's (inline ECC) or measured; without it,
    ``memory_bytes`` is a printed size in GB."""
    peer_to_peer: bool = True
    """False where two devices on one PCIe bus exchange bytes through host memory only."""
    unified_memory: bool = False
    """The device's memory is the host's."""
    cooling: tuple[Cooling, ...] = ()
    sm_count: int | None = None
    """Streaming multiprocessors (NVIDIA), compute units (AMD), cores of a CPU: how many tiles run at once."""
    clock_hz: float | None = None
    """The boost clock; of a CPU the base clock of its fastest cores."""
    l2_bytes: int | None = None
    """The last level of cache."""
    matmul_flops_per_s: float | None = None
    """What matrix products alone were measured to reach in bf16."""
    recorded: str = ""
    """The day these numbers were written down."""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """``CUDA``, ``ROCm``, ``XLA``, ``CANN``, ``Neuron``, ``Metal``, ..."""
        return PLATFORMS[self.kind]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """A host and the devices in it.

    ``scale_up`` joins ``scale_up_devices`` devices: all of the node where None, fewer (bridged pairs, the rest over
    ``bus``), or more than the node has (a rack such as NVL72, a TPU pod).
    """

    device: DeviceSpec
    devices: int
    host_memory_bytes: int | None = None
    """None where it is unknown, and where it is the device's own."""
    disk_bytes_per_s: float | None = None
    nvme_bytes: int | None = None  # of all drives in the node, as their rates; None: it has none
    nvme_read_bytes_per_s: float | None = None
    nvme_write_bytes_per_s: float | None = None
    cpu_cores: int | None = None
    scale_up: LinkSpec | None = None
    name: str = ""
    scale_up_devices: int | None = None
    bus: LinkSpec | None = None
    """Device to host memory, and device to device where ``scale_up`` ends inside the node."""
    rails: int | None = None
    """Network ports of the node."""
    source: str = ""


class Level(NamedTuple):
    """Of a hierarchical topology: ``devices`` devices reach each other over ``link`` and faster ones."""

    devices: int
    link: LinkSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """Equal nodes joined by one scale-out network."""

    node: NodeSpec
    nodes: int = 1
    scale_out: LinkSpec | None = None
    """One device's share of the node's network ports while all devices send."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where ``scale_up``, ``scale_out``, ``bus``, ``rails``, ``host_memory_bytes``, ``cpu_cores``,
    ``disk_bytes_per_s``, ``nvme_bytes`` and ``nvme_bytes_per_s`` come from: catalog, default or given."""

    @property
    def devices(self) -> int:
        """Devices in the whole cluster."""
        return self.nodes * self.node.devices

    @property
    def device(self) -> DeviceSpec:
        """Returns the one kind of device in it."""
        return self.node.device

    @property
    def name(self) -> str:
        """Returns it in one word, as ``on`` takes it: ``64x8xh100-sxm``."""
        return f"{self.nodes}x{self.node.devices}x{self.device.name}"

    @property
    def on_own_links(self) -> bool:
        """Returns whether devices of a node talk over links of their own, not over the host's bus."""
        link, bus = self.node.scale_up, self.node.bus
        return link is None or bus is None or not link.name.startswith(bus.name)

    @property
    def scale_up_devices(self) -> int:
        """Devices that share the fastest link."""
        return min(self.node.scale_up_devices or self.node.devices, self.devices)

    @property
    def is_one_domain(self) -> bool:
        """Returns whether the fastest link joins all devices, those of several nodes too (NVL72, a pod of TPUs)."""
        return self.node.scale_up is not None and self.scale_up_devices >= self.devices

    @property
    def levels(self) -> tuple[Level, ...]:
        """Returns the topology from the fastest link outwards; the last level holds all devices.

        Empty for one device; an unknown link has no level.
        """
        node = self.node
        reaches = (
            (self.scale_up_devices, node.scale_up),
            (min(node.devices, self.devices), node.bus if self.scale_up_devices < node.devices else None),
            (self.devices, self.scale_out),
        )
        levels: list[Level] = []
        for devices, link in reaches:
            if link is not None and devices > (levels[-1].devices if levels else 1):
                levels.append(Level(devices, link))
        return tuple(levels)
