"""How many devices the instance has that a price is of: as its cloud's file or the list of types says, else its name.

Who uses fewer devices than the smallest instance has pays for all of them (``whole``).
"""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.hardware.catalogue import printed_names
from trainwright.hardware.catalogue.devices import normalised
from trainwright.hardware.catalogue.nodes import node_size
from trainwright.hardware.prices.clouds import billing_of, cloud
from trainwright.spec.device import Price

_COUNTS = (
    re.compile(r"[a-z0-9]x(\d+)(?:-nvlink)?$"),
    re.compile(r"(?:^|[_-])(\d+)(?:x|gpu|g)(?=[_-]|$)"),
    re.compile(r"^(\d+)[abhlrv]\d*\w*\."),
)
"""How many devices an instance has, where its name says so: ``gpu_8x_h100``, ``1x_L4``, ``a3-highgpu-8g``,
``2B200.60V``, ``n3-L40x4``."""


_SINGLE = re.compile(r"^(crusoe|denvr|lambdalabs|massedcompute|paperspace|scaleway)_[a-z0-9-]+$")
"""An instance of one device in Shadeform's list, which ends the names of larger ones in their number: ``scaleway_L4``,
``scaleway_L4x2``."""


def instance_devices(price: Price) -> int | None:
    """Returns the number of devices of the instance that a price is of; None where nothing says it."""
    listed = {each.name: each.devices for each in cloud(price.provider).instances}
    typed = printed_names.instance_devices(normalised(price.instance))
    return listed.get(price.instance) or typed or named_devices(price.instance)


def can_be_had(price: Price, device: str, devices: int) -> bool:
    """Returns whether so many of a device can be rented at a price: in whole instances, and joined by fast links."""
    billing = billing_of(price)
    return (billing is None or devices <= billing.most_devices) and makes_up(price, device, devices)


def makes_up(price: Price, device: str, devices: int) -> bool:
    """Returns whether whole instances of a price make up so many devices, joined by fast links; however many."""
    count = instance_devices(price)
    return count is None or devices == count or (devices % count == 0 and count >= node_size(device))


def whole(price: Price, devices: int) -> Price | None:
    """Returns the price of each of so many ``devices`` where one instance holds them and more; None where none does."""
    count = instance_devices(price)
    if count is None or count <= devices:
        return None
    paid = price.usd_per_device_hour * count / devices
    return replace(price, usd_per_device_hour=paid, idle_devices=count - devices)


def named_devices(instance: str) -> int | None:
    """Returns the number of devices of an instance type, as its name says; None where it does not."""
    name = instance.lower()
    found = (int(match[1]) for each in _COUNTS if (match := each.search(name)))
    return next(found, 1 if _SINGLE.match(name) else None)
