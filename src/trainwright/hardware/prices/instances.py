"""How many devices the instance has that a price is of: as its cloud's file says, else as its name does."""

from __future__ import annotations

import re

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


def instance_devices(price: Price) -> int | None:
    """Returns the number of devices of the instance that a price is of; None where nothing says it."""
    listed = {each.name: each.devices for each in cloud(price.provider).instances}
    return listed.get(price.instance) or named_devices(price.instance)


def can_be_had(price: Price, device: str, devices: int) -> bool:
    """Returns whether so many of a device can be rented at a price: in whole instances, and joined by fast links."""
    billing, count = billing_of(price), instance_devices(price)
    if billing is not None and devices > billing.most_devices:
        return False
    return count is None or devices == count or (devices % count == 0 and count >= node_size(device))


def named_devices(instance: str) -> int | None:
    """Returns the number of devices of an instance type, as its name says; None where it does not."""
    found = (match for each in _COUNTS if (match := each.search(instance.lower())))
    return next((int(match[1]) for match in found), None)
