"""Clusters count their devices; stored elements have their IEEE sizes."""

from __future__ import annotations

import numpy as np

from trainwright.spec.device import DTYPE_BYTES, ClusterSpec, DeviceSpec, NodeSpec


def test_devices_of_a_cluster() -> None:
    device = DeviceSpec(name="x", kind="cuda", vendor="v", memory_bytes=1, bytes_per_s=1.0, flops_per_s={})
    cluster = ClusterSpec(node=NodeSpec(device=device, devices=8), nodes=3)
    assert cluster.devices == 24
    assert cluster.device is device


def test_bytes_of_an_element() -> None:
    assert DTYPE_BYTES["fp32"] == np.dtype(np.float32).itemsize
    assert DTYPE_BYTES["fp16"] == DTYPE_BYTES["bf16"] == np.dtype(np.float16).itemsize
