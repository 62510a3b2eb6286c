"""A device beside its price: what can be compared, filtered and sorted across the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.spelling import did_you_mean
from trainwright.hardware.catalogue.devices import device, device_names
from trainwright.hardware.catalogue.energy import HOST_POWER_SHARE, PUE, energy
from trainwright.hardware.prices.price_list import PriceList
from trainwright.spec.device import DeviceKind, DeviceSpec, Price, PriceKind

Order = Literal["name", "year", "memory", "bandwidth", "flops", "power", "price", "flops-per-dollar", "flops-per-watt"]
HALF = ("bf16", "fp16")
"""Precisions that large models train in: a device is ranked by its rate in the first that it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A device, its cheapest price of each kind, and what follows from both; None is unknown."""

    device: DeviceSpec
    prices: Mapping[PriceKind, Price]

    @property
    def dtype(self) -> str | None:
        """``bf16``, or ``fp16`` where the device has no bf16."""
        return next((dtype for dtype in HALF if dtype in self.device.flops_per_s), None)

    @property
    def flops_per_s(self) -> float | None:
        """Returns the dense 16-bit rate."""
        return None if self.dtype is None else self.device.flops_per_s[self.dtype]

    @property
    def usd_per_hour(self) -> float | None:
        """Returns the cheapest on-demand price."""
        price = self.prices.get("on_demand")
        return None if price is None else price.usd_per_device_hour

    @property
    def flops_per_usd(self) -> float | None:
        """Operations that a dollar buys at the dense 16-bit rate."""
        return self.flops_per_s * 3600 / self.usd_per_hour if self.flops_per_s and self.usd_per_hour else None

    @property
    def flops_per_s_per_w(self) -> float | None:
        """Returns the dense 16-bit rate for each watt of rated power."""
        return self.flops_per_s / self.device.tdp_w if self.flops_per_s and self.device.tdp_w else None

    @property
    def building_w(self) -> float | None:
        """Rated power with its share of the host and of the building (see ``hardware.catalogue.energy``)."""
        use = energy(self.device, 1, 3600, host_share=HOST_POWER_SHARE, pue=PUE)
        return None if use is None else use.building_kwh * 1000


def card(name: str, prices: PriceList, *, where: str | None = None) -> Card:
    """Returns the card of a device, by name or alias.

    Raises:
        RecipeError: the catalogue does not know it.
    """
    spec = device(name, where=where)
    cheapest = {kind: prices.cheapest(spec.name, kind) for kind in get_args(PriceKind)}
    return Card(device=spec, prices={kind: price for kind, price in cheapest.items() if price is not None})


_KEYS: Mapping[Order, Callable[[Card], float | None]] = {
    "year": lambda card: card.device.year,
    "memory": lambda card: card.device.memory_bytes,
    "bandwidth": lambda card: card.device.bytes_per_s,
    "flops": lambda card: card.flops_per_s,
    "power": lambda card: card.device.tdp_w,
    "price": lambda card: card.usd_per_hour,
    "flops-per-dollar": lambda card: card.flops_per_usd,
    "flops-per-watt": lambda card: card.flops_per_s_per_w,
}
_ASCENDING = ("power", "price")


def cards(
    prices: PriceList,
    *,
    kind: DeviceKind | None = None,
    vendor: str | None = None,
    min_memory_bytes: int = 0,
    order: Order = "name",
) -> Sequence[Card]:
    """Cards of the catalogue, the best first in ``order``; what is unknown comes last.

    Processors are among them where their kind or a vendor is asked for.

    Raises:
        RecipeError: no device is of that vendor.
    """
    every = [card(name, prices) for name in device_names()]
    if vendor is not None:
        vendors = sorted({each.device.vendor for each in every})
        if vendor.casefold() not in map(str.casefold, vendors):
            raise RecipeError(
                "unknown vendor",
                field="vendor",
                seen=repr(vendor),
                expected=f"one of {', '.join(vendors)}",
                fix=did_you_mean(vendor.upper(), vendors) or did_you_mean(vendor.title(), vendors),
            )
    matching = [
        each
        for each in every
        if (each.device.kind == kind or (kind is None and (vendor is not None or each.device.kind != "cpu")))
        and (vendor is None or each.device.vendor.casefold() == vendor.casefold())
        and each.device.memory_bytes >= min_memory_bytes
    ]
    if order == "name":
        return matching
    key, sign = _KEYS[order], 1 if order in _ASCENDING else -1
    values = {each.device.name: key(each) for each in matching}
    return sorted(matching, key=lambda each: _place(values[each.device.name], sign))


def _place(value: float | None, sign: int) -> tuple[bool, float]:
    return value is None, 0.0 if value is None else sign * value
