"""What a device can be had for: rented by cloud and kind of price, or owned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.prices.clouds import Billing, billing_of, cloud
from trainwright.hardware.prices.instances import instance_devices
from trainwright.hardware.prices.price_list import PriceList
from trainwright.spec.device import ClusterSpec, Price, PriceKind

OWN, GIVEN = "own", "given"
"""Providers of devices that are there already, and at a price that the user gives."""
UNLISTED = Billing(granularity_s=1e-6, minimum_s=0.0, source="a price that is given, or none: for its time alone")
"""Of devices whose price stands in no list: paid without steps, as a plan at a given price is; as many are to be had at
once as elsewhere, more by a contract."""
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A way to get a device: ``provider`` is a cloud's title, ``OWN``, ``GIVEN``, or empty where no price is known.

    At most ``devices`` can be had (None: any number), in whole instances of ``whole`` devices. An instance that is less
    than a node is had alone: no fast links join several.
    """

    provider: str
    kind: PriceKind | None
    usd_per_device_hour: float | None
    price: Price | None = None
    devices: int | None = None
    whole: int = 1
    idle_usd_per_device_hour: float = 0.0
    """What each of ``devices`` costs while a run leaves it idle: bought machines are paid off all the same."""

    @property
    def billing(self) -> Billing | None:
        """Returns how it is paid: as its cloud counts; ``UNLISTED`` where no list has its price; None: one's own."""
        return None if self.provider == OWN else billing_of(self.price) or UNLISTED

    def hourly_usd(self, devices: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns what an hour costs for each of so many ``devices`` in use, those that are idle included."""
        if self.usd_per_device_hour is None:
            return None
        idle = 0 if self.devices is None else np.maximum(0, self.devices - devices)
        return self.usd_per_device_hour + self.idle_usd_per_device_hour * idle / devices

    @property
    def spot_provider(self) -> str | None:
        """Returns the cloud's short name where nodes may be taken back."""
        return cloud(self.provider).slug if self.kind == "spot" else None


def offers(
    device: str,
    prices: PriceList,
    *,
    node_devices: int,
    clouds: Sequence[str] | None = None,
    regions: Sequence[str] | None = None,
    kinds: Sequence[PriceKind] = PRICE_KINDS,
) -> tuple[Offer, ...]:
    """Returns the cheapest of each cloud, kind and size of instance, a doubtful one only where there is no other.

    Where none is known of such kinds and clouds, they are without a price: of the clouds that rent the device.

    Raises:
        RecipeError: an unknown cloud.
    """
    cheapest: dict[tuple[str, str, int], Offer] = {}
    for price in prices.offers(device, providers=clouds, regions=regions):
        if price.kind in kinds:
            whole, usd = instance_devices(price) or node_devices, price.usd_per_device_hour
            most = whole if whole < node_devices else None
            offer = Offer(
                provider=price.provider,
                kind=price.kind,
                usd_per_device_hour=usd,
                price=price,
                devices=most,
                whole=whole,
            )
            cheapest.setdefault((price.provider, price.kind, whole), offer)
    return tuple(cheapest.values()) or _unpriced(device, prices, clouds)


def _unpriced(device: str, prices: PriceList, clouds: Sequence[str] | None) -> tuple[Offer, ...]:
    """Returns ways to get a device at an unknown price: from those of ``clouds`` that rent it, else from nobody."""
    titles = {cloud(name).title for name in clouds or ()}
    named = {each.provider: each.devices for each in prices.unpriced(device) if each.provider in titles}
    ways = [Offer(provider=title, kind=None, usd_per_device_hour=None, whole=whole) for title, whole in named.items()]
    return tuple(ways) or (Offer(provider="", kind=None, usd_per_device_hour=None),)


def owned(machines: ClusterSpec, usd_per_device_hour: float = 0.0, *, idle_usd_per_device_hour: float = 0.0) -> Offer:
    """Returns the offer of a cluster that is there already."""
    return Offer(
        provider=OWN,
        kind=None,
        usd_per_device_hour=usd_per_device_hour,
        devices=machines.devices,
        idle_usd_per_device_hour=idle_usd_per_device_hour,
    )


def pool_parts(text: str) -> list[str]:
    """Returns what ``+`` joins: two of ``8xa100-80gb + 8xh100-sxm``, one of ``Xeon Platinum 8480+``."""
    return [part.strip() for part in re.split(r"\+(?=\s*[^+\s])", text)]


def read_pool(text: str) -> tuple[ClusterSpec, ...]:
    """Returns the clusters of ``8xa100-80gb+8xh100-sxm``, of unlike devices; ``4x8xa100-80gb`` is one.

    Raises:
        RecipeError: see ``hardware.catalogue.nodes.cluster``; a part without a cluster, or one kind of device twice.
    """
    parts = pool_parts(text)
    # Of names only a processor's number, as 8480+, ends in the sign.
    if not all(parts) or any(re.search(r"(?<!\d{4})\+$", part) for part in parts):
        raise RecipeError("nothing before or behind a +", seen=repr(text), expected="clusters, such as 8xl4+8xh100-sxm")
    pool = tuple(cluster(part) for part in parts)
    names = [each.device.name for each in pool]
    if len(set(names)) < len(names):
        expected, fix = "unlike devices joined by +", "add equal devices up: 2x8xh100-sxm"
        raise RecipeError("one kind of device is named twice", seen=text, expected=expected, fix=fix)
    return pool
