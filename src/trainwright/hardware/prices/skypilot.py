"""Reads SkyPilot's catalogue format: one CSV per cloud, a row for each instance type and zone.

Columns: InstanceType, AcceleratorName, AcceleratorCount, vCPUs, MemoryGiB, Price, Region, GpuInfo, SpotPrice. Prices
are those of the whole instance, or, in Google's list, of the accelerators alone beside rows for the machines that they
are attached to. TPU slices are one accelerator whose name counts chips, or, up to v5p, cores.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from trainwright.core.errors import DataError
from trainwright.core.frozen import dataclass
from trainwright.hardware.prices.clouds import Cloud

COLUMNS = ("device", "provider", "instance", "kind", "usd_per_device_hour", "region", "source", "as_of", "note", "date")
"""Columns of a file in ``catalog/prices``."""
PLACEHOLDER_USD = 700.0
"""The number that the catalogue prints where a price is unknown."""

_NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
_TPU = re.compile(r"tpu-(?P<generation>v\d+[a-z]*)-(?P<size>\d+)")
_CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}
_GENERATIONS = {"v5litepod": "tpu-v5e"}
_KINDS = {"Price": "on_demand", "SpotPrice": "spot"}

PriceRow = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """Rows in the form of ``catalog/prices``, the cheapest zone of each region, and refusals counted by reason."""

    rows: tuple[PriceRow, ...]
    refused: Mapping[str, int]


def read(text: str, cloud: Cloud, *, source: str, as_of: str) -> Read:
    """Returns the prices in a SkyPilot CSV.

    Args:
        text: the file.
        cloud: whose it is.
        source: where it came from, for each row.
        as_of: the date of each row.

    Raises:
        DataError: not such a file.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        table = [row for row in reader if any(row.values())]
    except csv.Error as error:
        raise DataError("a damaged price file", where=source, seen=str(error)) from error
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise DataError(
            "not a price file in SkyPilot's format",
            where=source,
            seen=f"no column {', '.join(missing)}",
            expected=", ".join(_NEEDED),
        )
    hosts = _hosts(table)
    cheapest: dict[tuple[str, str, str, str], float] = {}
    refused: Counter[str] = Counter()
    for row in table:
        for kind, offer in _offers(row, cloud, hosts):
            if isinstance(offer, str):
                refused[offer] += 1
                continue
            key = (offer.device, offer.instance, kind, _text(row, "Region"))
            cheapest[key] = min(offer.usd_per_device_hour, cheapest.get(key, math.inf))
    rows = tuple(
        {
            "device": device,
            "provider": cloud.title,
            "instance": instance,
            "kind": kind,
            "usd_per_device_hour": f"{usd:.6g}",
            "region": region,
            "source": source,
            "as_of": as_of,
            "note": "",
            "date": as_of,
        }
        for (device, instance, kind, region), usd in sorted(cheapest.items())
    )
    return Read(rows=rows, refused=dict(refused))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offer:
    device: str
    instance: str
    usd_per_device_hour: float


def _offers(
    row: PriceRow, cloud: Cloud, hosts: Mapping[tuple[str, str], PriceRow]
) -> Iterator[tuple[str, _Offer | str]]:
    """For each kind of price in the row: the offer, or why it is none. Rows without an accelerator hold none."""
    accelerator, instance = _text(row, "AcceleratorName"), _text(row, "InstanceType")
    if not accelerator:
        return
    for column, kind in _KINDS.items():
        if not _text(row, column):
            continue  # many clouds have no spot price, and some machines are sold in no other way
        usd, count = _number(row, column), _number(row, "AcceleratorCount")
        device, per = cloud.device(accelerator, instance), 1.0
        host = None
        if (slice_of := _TPU.fullmatch(accelerator)) is not None:
            device, per = _chips(slice_of, cloud)
        elif not instance:
            host = hosts.get((cloud.hosts.get(f"{accelerator}:{count:g}", ""), _zone(row)))
            if host is None:
                yield kind, "host not included"
                continue
        extra = 0.0 if host is None else _number(host, column)
        if not all(map(str.isprintable, (accelerator, instance, _text(row, "Region"), _zone(row)))):
            yield kind, "a name that cannot be printed"
        elif any(map(math.isnan, (usd, count, extra))):
            yield kind, "a price or count that is no number"
        elif usd <= 0 or usd == PLACEHOLDER_USD:
            yield kind, "placeholder"
        elif count < 1:
            yield kind, "part of a device"
        elif device is None:
            yield kind, "device not in the catalogue"
        else:
            name = instance or (accelerator if host is None else _text(host, "InstanceType"))
            yield kind, _Offer(device=device, instance=name, usd_per_device_hour=(usd + extra) / (count * per))


def _chips(slice_of: re.Match[str], cloud: Cloud) -> tuple[str | None, float]:
    """Device and chips of a TPU slice."""
    generation, size = slice_of["generation"], int(slice_of["size"])
    name = _GENERATIONS.get(generation, f"tpu-{generation}")
    return cloud.device(name, ""), max(1, size // _CORES_PER_CHIP.get(generation, 1))


def _hosts(table: list[dict[str, str]]) -> dict[tuple[str, str], PriceRow]:
    """Machines without accelerators by name and zone."""
    return {
        (_text(row, "InstanceType"), _zone(row)): row
        for row in table
        if _text(row, "InstanceType") and not _text(row, "AcceleratorName")
    }


def _zone(row: PriceRow) -> str:
    return _text(row, "AvailabilityZone") or _text(row, "Region")


def _text(row: PriceRow, column: str) -> str:
    return (row.get(column) or "").strip()


def _number(row: PriceRow, column: str) -> float:
    """Returns the cell as a number; NaN where it is none."""
    try:
        number = float(_text(row, column))
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
