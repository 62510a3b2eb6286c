"""Devices, links, nodes, clusters and their prices: what a run happens on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["cuda", "rocm", "tpu", "cpu", "npu", "mps", "xpu", "hpu", "neuron"]
PriceKind = Literal["on_demand", "spot", "reserved"]

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one stored element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkSpec:
    """One direction of a connection between devices or nodes."""

    name: str
    bytes_per_s: float
    latency_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a device costs for an hour; ``as_of`` is a date, or the commit of the price list in ``source``."""

    usd_per_device_hour: float
    kind: PriceKind
    provider: str
    region: str
    as_of: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSpec:
    """An accelerator or a CPU socket as one device.

    ``flops_per_s`` holds *dense* peak rates by dtype; a missing dtype means unknown or unsupported, never a fallback.
    ``efficiency_source`` names where the rates come from: ``catalog`` (datasheet) or ``probed`` (measured here).
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """A host and the devices in it."""

    device: DeviceSpec
    devices: int
    host_memory_bytes: int | None = None
    disk_bytes_per_s: float | None = None
    cpu_cores: int | None = None
    scale_up: LinkSpec | None = None
    price: Price | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """Equal nodes joined by one scale-out network."""

    node: NodeSpec
    nodes: int = 1
    scale_out: LinkSpec | None = None
    probes: Mapping[str, float] = field(default_factory=dict)
    """Measured facts of this machine by name (see ``stages.doctor``); empty where nothing was probed."""

    @property
    def devices(self) -> int:
        """Devices in the whole cluster."""
        return self.nodes * self.node.devices

    @property
    def device(self) -> DeviceSpec:
        """The one kind of device in it."""
        return self.node.device
