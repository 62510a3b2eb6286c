"""Why no listed price is of what is asked for: no list has such a row, or nobody rents so many at it."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.core.money import format_hourly
from trainwright.hardware.catalogue.devices import find_device
from trainwright.hardware.prices.clouds import cloud
from trainwright.hardware.prices.instances import instance_devices
from trainwright.hardware.prices.price_list import price_list
from trainwright.spec.device import ClusterSpec, PriceKind

YOURS = "trainwright hardware prices add takes yours, or --price USD"


def why_unpriced(
    machines: ClusterSpec,
    kind: PriceKind,
    *,
    clouds: Sequence[str] | None = None,
    regions: Sequence[str] | None = None,
) -> str:
    """Returns why ``price_list.price_of`` has none of such machines, and how to say one."""
    device = machines.device.name
    if find_device(device) is None:
        return f"no list has a price of {device}, which the catalogue does not know; --price USD"
    offers = price_list(device).offers(device, kind=kind, providers=clouds, regions=regions)
    named = kind.replace("_", "-")
    if offers:
        count, hourly = instance_devices(offers[0]), format_hourly(offers[0].usd_per_device_hour)
        offer = f"{offers[0].provider} {offers[0].instance}, at {hourly} the cheapest {named} {device} of the lists"
        return f"{offer}, has {count} of {machines.devices:,} devices, and no fast link joins several; {YOURS}"
    at = "" if not clouds else f" at {' or '.join(cloud(name).title for name in clouds)}"
    place = "" if not regions else f" in {' or '.join(regions)}"
    return f"the lists have no believable {named} price of {device}{at}{place}; {YOURS}"
