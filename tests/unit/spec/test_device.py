"""Clusters count their devices; stored elements have their IEEE sizes."""

from __future__ import annotations

import numpy as np

from trainwright.spec.device import DTYPE_BYTES, ClusterSpec, DeviceSpec, LinkSpec, NodeSpec


def test_devices_of_a_cluster() -> None:
    device = DeviceSpec(name="x", kind="cuda", vendor="v", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
    cluster = ClusterSpec(node=NodeSpec(device=device, devices=8), nodes=3)
    assert cluster.devices == 24
    assert cluster.device is device


def test_bytes_of_an_element() -> None:
    assert DTYPE_BYTES["fp32"] == np.dtype(np.float32).itemsize
    assert DTYPE_BYTES["fp16"] == DTYPE_BYTES["bf16"] == np.dtype(np.float16).itemsize


def test_levels_go_outwards_and_skip_what_is_unknown() -> None:
    device = DeviceSpec(name="x", kind="cuda", vendor="v", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
    fast, slow, net = (LinkSpec(name=name, bytes_per_s=1.0) for name in ("fast", "slow", "net"))
    pairs = NodeSpec(device=device, devices=8, scale_up=fast, scale_up_devices=2, bus=slow)
    assert ClusterSpec(node=pairs, nodes=2, scale_out=net).levels == ((2, fast), (8, slow), (16, net))
    rack = NodeSpec(device=device, devices=4, scale_up=fast, scale_up_devices=72, bus=slow)
    assert ClusterSpec(node=rack, nodes=18, scale_out=net).levels == ((72, fast),)
    assert ClusterSpec(node=NodeSpec(device=device, devices=1)).levels == ()
    assert ClusterSpec(node=pairs, nodes=2).levels == ((2, fast), (8, slow))


def test_a_kind_of_device_names_its_platform() -> None:
    kinds = {"cuda": "CUDA", "npu": "CANN", "tpu": "XLA", "mps": "Metal"}
    for kind, platform in kinds.items():
        spec = DeviceSpec(name="x", kind=kind, vendor="v", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
        assert spec.platform == platform
