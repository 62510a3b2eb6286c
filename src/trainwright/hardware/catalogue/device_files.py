"""What a file of ``catalog/devices`` must have: users add their own, and a slip is named by file and key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import unknown
from trainwright.spec.device import DeviceKind, DeviceSpec

_REQUIRED = (
    *("name", "title", "aliases", "vendor", "kind", "year", "memory_bytes", "bytes_per_s", "software", "source"),
    *("recorded", "flops_per_s"),
)
_SIZES = (
    *("memory_bytes", "bytes_per_s", "tdp_w", "visible_bytes", "sm_count", "clock_hz", "l2_bytes"),
    *("matmul_flops_per_s", "year", "pcie_generation"),
)
_KNOWN = ("title", "aliases", *(each.name for each in fields(DeviceSpec)))


def checked(table: Mapping[str, Any], name: str, *, where: str) -> Mapping[str, Any]:
    """Returns the table of a device's file.

    Args:
        table: as it was read.
        name: of the file, which is the device's.
        where: its path.

    Raises:
        RecipeError: a key is missing, unknown, or of another device; or a number is none above zero.
    """
    for key in _REQUIRED:
        if key not in table:
            raise RecipeError("a device without {key}", where=where, expected=f"{key} = ...", key=key)
    for key in table:
        if key not in _KNOWN:
            raise RecipeError("unknown key of a device", where=where, **unknown(key, _KNOWN))
    if table["name"] != name:
        raise RecipeError("a device is named as its file", where=f"{where}: name", seen=table["name"], expected=name)
    if table["kind"] not in (kinds := get_args(DeviceKind)):
        raise RecipeError("unknown kind of device", where=f"{where}: kind", **unknown(str(table["kind"]), kinds))
    for key, value in _numbers(table):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            seen, expected = repr(value), "a number above zero"
            raise RecipeError("a size or rate of a device", where=f"{where}: {key}", seen=seen, expected=expected)
    return table


def _numbers(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from ((key, table[key]) for key in _SIZES if key in table)
    rates = table["flops_per_s"]
    if not isinstance(rates, Mapping):
        yield "flops_per_s", None  # no table of formats
    else:
        yield from ((f"flops_per_s.{key}", value) for key, value in rates.items())
