"""Reads ``catalog/efficiency.toml``, and says which generation a device belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache

from trainwright.hardware.catalogue.tables import CATALOG
from trainwright.spec.device import DeviceSpec
from trainwright.spec.efficiency import Efficiency

_FILE = CATALOG / "efficiency.toml"
_CUDA = (
    (10.0, "blackwell"),
    (9.0, "hopper"),
    (8.9, "ada"),
    (8.1, "ampere-rtx"),
    (8.0, "ampere"),
    (7.0, "volta"),
    (0.0, "pascal"),
)
"""Generations by the least compute capability; Turing's tensor cores are Volta's kind, and so it counts as Volta."""
DEFAULT = "default"


def generation(device: DeviceSpec) -> str:
    """``hopper``, ``tpu``, ``npu`` ...: devices whose kernels are written and tuned alike."""
    if device.kind != "cuda":
        return device.kind
    capability = float(device.compute_capability or 0)
    return next(name for least, name in _CUDA if capability >= least)


def matmul_reach(device: DeviceSpec, shares: Mapping[str, float]) -> float:
    """Returns what matrix products alone reach on a device, over what they do in its generation; 1 if unmeasured.

    ``shares`` are those of generations (``Efficiency.matmul``).
    """
    usual, share = shares.get(generation(device)), matmul_share(device)
    return share / usual if share and usual else 1.0


def matmul_share(device: DeviceSpec) -> float | None:
    """Returns the share of its dense bf16 peak that matrix products were measured to reach, or None."""
    reached = device.matmul_flops_per_s
    return None if reached is None else reached / device.flops_per_s["bf16"]


@cache
def read_efficiency() -> Efficiency:
    """Returns the catalogue's numbers, fitted by ``benchmarks/fit_time.py``."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Efficiency(**table["efficiency"])
