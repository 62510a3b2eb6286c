"""Reads ``catalog/prices``: what a device costs for an hour.

Rows are checked; one that cannot be true is left out, and counted with its reason.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import get_args

from trainwright.spec.device import Price, PriceKind

_PRICES = files("trainwright") / "catalog" / "prices"
PLACEHOLDER_USD = 700.0
"""What SkyPilot's catalogue prints where a price is unknown."""
_FLOOR = 0.1
"""A spot price at exactly a tenth of on-demand is a provider's floor, not a market price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Believable prices by device name, and how many rows were refused for which reason."""

    prices: Mapping[str, tuple[Price, ...]]
    refused: Mapping[str, int]

    def cheapest(self, device: str, kind: PriceKind = "on_demand") -> Price | None:
        """The lowest price of that kind for one hour of ``device``, or None where none is known."""
        found = [price for price in self.prices.get(device, ()) if price.kind == kind]
        return min(found, key=lambda price: price.usd_per_device_hour) if found else None


@cache
def price_list() -> PriceList:
    """All rows of every file in ``catalog/prices``, checked."""
    rows: list[Mapping[str, str]] = []
    for entry in sorted(_PRICES.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".csv"):
            rows.extend(csv.DictReader(entry.read_text(encoding="utf-8").splitlines()))
    return checked(rows)


def checked(rows: Iterable[Mapping[str, str]]) -> PriceList:
    """Sort rows into believable prices and refusals counted by reason.

    Args:
        rows: with keys device, provider, instance, kind, usd_per_device_hour, region, source, as_of, note.
    """
    kept = list(rows)
    on_demand = _on_demand(kept)
    prices: dict[str, list[Price]] = {}
    refused: Counter[str] = Counter()
    for row in kept:
        reason = _refusal(row, on_demand)
        if reason is not None:
            refused[reason] += 1
            continue
        prices.setdefault(row["device"], []).append(
            Price(
                usd_per_device_hour=float(row["usd_per_device_hour"]),
                kind=row["kind"],  # type: ignore[arg-type]  # _refusal has checked it
                provider=row["provider"],
                region=row["region"],
                as_of=row["as_of"],
                source=row["source"],
            )
        )
    return PriceList(prices={name: tuple(found) for name, found in prices.items()}, refused=dict(refused))


def _on_demand(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str, str], float]:
    return {
        (row["device"], row["provider"], row["instance"]): float(row["usd_per_device_hour"])
        for row in rows
        if row["kind"] == "on_demand" and row["usd_per_device_hour"]
    }


def _refusal(row: Mapping[str, str], on_demand: Mapping[tuple[str, str, str], float]) -> str | None:
    if not row["usd_per_device_hour"]:
        return "no price printed"
    if not row["device"]:
        return "device not in the catalogue"
    if row["kind"] not in get_args(PriceKind):
        return "unknown kind of price"
    usd = float(row["usd_per_device_hour"])
    if usd <= 0 or usd == PLACEHOLDER_USD:
        return "placeholder"
    if "accelerator part only" in row["note"]:
        return "host not included"
    reference = on_demand.get((row["device"], row["provider"], row["instance"]))
    if row["kind"] == "spot" and reference is not None:
        if usd >= reference:
            return "spot not below on-demand"
        if abs(usd / reference - _FLOOR) < 1e-4:
            return "spot at the provider's floor"
    return None
