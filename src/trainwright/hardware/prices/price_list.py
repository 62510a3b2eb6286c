"""Prices of a device for an hour: the packaged price list, and newer ones that the user has fetched.

Rows are checked; one that cannot be true is left out, and counted with its reason. A price that no list has is unknown:
``unpriced`` names instance types that carry a device all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import chain
from typing import NamedTuple, get_args

from trainwright.core.errors import DataError, RecipeError, about
from trainwright.core.frozen import dataclass
from trainwright.core.money import format_hourly
from trainwright.core.spelling import did_you_mean
from trainwright.hardware.catalogue.devices import device_names
from trainwright.hardware.prices import snapshot
from trainwright.hardware.prices.clouds import cloud, clouds
from trainwright.hardware.prices.instances import can_be_had, makes_up, whole
from trainwright.hardware.prices.networks import why_single
from trainwright.hardware.prices.regions import lies_in, names_place, place_names
from trainwright.hardware.prices.skypilot import PLACEHOLDER_USD, PriceRow
from trainwright.spec.device import ClusterSpec, Price, PriceKind

_FLOOR = 0.1
"""A spot price at exactly a tenth of on-demand is a provider's floor, not a market price: AWS, Azure and GCP advertise
discounts of up to 90, 90 and 91 % (recall)."""
_NEAR_FLOOR = 2 * _FLOOR
"""A spot price below this share of on-demand is doubtful: what nobody bids for, in the one zone that a list names, at
the minute in which it was read. Of the believable ones in the packaged list the lowest is at 0.31."""
_OUTLIER = 10
"""A price of more than so many times the device's median, or of less than such a part on demand, is a slip of the
pen."""

OLD_DAYS = 90
"""From this age on a price is said to be old."""

_KINDS: Mapping[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}


class Unpriced(NamedTuple):
    """An instance type that carries ``devices`` of a device, at a price that is not known."""

    provider: str
    instance: str
    devices: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Prices by device name, and how many rows were refused for which reason; doubtful prices say why they are."""

    prices: Mapping[str, tuple[Price, ...]]
    refused: Mapping[str, int]

    def offers(
        self,
        device: str,
        *,
        kind: PriceKind | None = None,
        providers: Sequence[str] | None = None,
        regions: Sequence[str] | None = None,
    ) -> tuple[Price, ...]:
        """Prices of an hour of ``device``, cheapest first, doubtful ones after all others.

        Args:
            device: its name in the catalogue.
            kind: only such prices.
            providers: only those of these clouds, by name or alias.
            regions: only those that lie in one of these countries or groups, or have such a name (``regions.lies_in``).

        Raises:
            RecipeError: an unknown cloud.
        """
        titles = None if providers is None else {cloud(name).title for name in providers}
        offers = [
            price
            for price in self.prices.get(device, ())
            if (kind is None or price.kind == kind)
            and (titles is None or price.provider in titles)
            and (regions is None or any(lies_in(price.region, region) for region in regions))
        ]
        return tuple(sorted(offers, key=_order))

    def cheapest(
        self,
        device: str,
        kind: PriceKind = "on_demand",
        *,
        providers: Sequence[str] | None = None,
        regions: Sequence[str] | None = None,
        devices: int | None = None,
    ) -> Price | None:
        """Returns the lowest such price that is not doubtful, else the lowest, or None where none is known.

        Of so many ``devices`` it is one at which they can be had, else of the cheapest instance that holds them and
        more, at what it costs for each of them, else of instances that make them up, of which fewer are there.
        """
        offers = self.offers(device, kind=kind, providers=providers, regions=regions)
        return next(iter(offers), None) if devices is None else _holding(offers, device, devices)

    def unpriced(self, device: str) -> tuple[Unpriced, ...]:
        """Instance types that carry ``device`` in clouds without any known price of it."""
        priced = {price.provider for price in self.prices.get(device, ())}
        return tuple(
            Unpriced(each.title, instance.name, instance.devices)
            for each in clouds()
            for instance in each.instances
            if instance.device == device and each.title not in priced
        )


def _holding(offers: Sequence[Price], device: str, devices: int) -> Price | None:
    """Returns the best of ``offers``, which are in order, for so many devices; None: no instances make them up."""
    if (fitting := next((price for price in offers if can_be_had(price, device, devices)), None)) is not None:
        return fitting
    larger = sorted(filter(None, (whole(price, devices) for price in offers)), key=_order)
    return next(chain(larger, (price for price in offers if makes_up(price, device, devices))), None)


def _order(price: Price) -> tuple[bool, float]:
    """Returns the key of the best first: doubtful ones last, then by price."""
    return bool(price.doubt), price.usd_per_device_hour


def price_list(device: str | None = None) -> PriceList:
    """Returns all price lists, checked; of one ``device`` alone where it is named, which takes a third of the time.

    A cloud's fetched list stands in place of its packaged rows of each device that it has, a price of the user's own in
    place of others of its device, cloud, kind and region.

    Raises:
        MachineError: a fetched list cannot be read.
        DataError: one is no price list, or a price in the user's own cannot be right.
    """
    files = snapshot.fetched_files()  # of which a link may lead nowhere
    return _price_list(tuple((path, path.exists() and path.stat().st_mtime_ns) for path in files), device)


def price_of(
    device: str,
    kind: PriceKind,
    *,
    usd: float | Mapping[str, float] | None,
    clouds: Sequence[str] | None,
    regions: Sequence[str] | None = None,
    machines: ClusterSpec | None = None,
) -> Price | None:
    """Returns what an hour of a device costs: ``usd``, else what ``PriceList.cheapest`` has of such ``machines``.

    A cloud whose network may join several of them comes before others (``networks.why_single``).

    Raises:
        RecipeError: a mapping lacks the device, the price is below zero, or a cloud is not known.
    """
    with about("clouds"):
        for name in clouds or ():
            cloud(name)
    if isinstance(usd, Mapping):
        if device not in usd:
            raise RecipeError("no price of this device", field="price", seen=", ".join(usd), expected=f"{device}=USD")
        usd = usd[device]
    if usd is None:
        offers = price_list(device).offers(device, kind=kind, providers=clouds, regions=regions)
        return next(iter(offers), None) if machines is None else _of_machines(offers, machines)
    if not 0 <= usd < math.inf:  # nothing: machines that are there already
        raise RecipeError("a price is not below zero", field="price", seen=str(usd))
    return given_price(device, usd, kind)


def _of_machines(offers: Sequence[Price], machines: ClusterSpec) -> Price | None:
    device, devices = machines.device.name, machines.devices
    if machines.nodes > 1 and not machines.is_one_domain:
        joined = [price for price in offers if not why_single(price.provider, machines)]
        if (found := _holding(joined, device, devices)) is not None:
            return found
    return _holding(offers, device, devices)


def given_price(device: str, usd: float, kind: PriceKind) -> Price:
    """Returns a price that a user gives, in doubt where it is far beyond all that the lists have of the device."""
    listed = price_list().prices
    known = listed.get(device) or [each for prices in listed.values() for each in prices]
    dearest = max((each.usd_per_device_hour for each in known), default=math.inf)
    cheapest = min((each.usd_per_device_hour for each in known), default=0.0)
    doubt = ""
    if usd > _OUTLIER * dearest:
        doubt = f"{usd / dearest:,.0f} x the dearest in the lists ({format_hourly(dearest)} an hour)"
    elif 0 < usd < cheapest / _OUTLIER:
        doubt = f"{usd / cheapest:.2g} x the cheapest in the lists ({format_hourly(cheapest)} an hour)"
    return Price(usd_per_device_hour=usd, kind=kind, provider="", region="", as_of="", source="given", doubt=doubt)


def region(name: str) -> str:
    """Returns ``name``, where some price's region can lie there: a country, a group, or the beginning of a region.

    Raises:
        RecipeError: no list has such a region; names a near one.
    """
    listed = {price.region for prices in price_list().prices.values() for price in prices}
    if names_place(name, (*listed, *place_names())):
        return name
    known = dict.fromkeys((*place_names(), *(each.partition("/")[0] for each in sorted(listed))))
    near = [each for each in known if len(each) > 2 or len(name) < 4]  # a long word is no slip of a country's code
    expected = "a country (us), a group (eu, eea, europe) or the beginning of a region (us-east-1)"
    raise RecipeError("unknown region", seen=repr(name), expected=expected, fix=did_you_mean(name.lower(), near))


@cache
def _price_list(_stamps: tuple[tuple[object, int], ...], device: str | None) -> PriceList:
    return checked(_in_use(snapshot.fetched(), device))


def refusal(row: PriceRow) -> str | None:
    """Why a price that is added to the user's own list would be left out beside all others; None: it would not.

    Raises:
        MachineError: a list cannot be read.
        DataError: one is no price list.
    """
    mine = snapshot.Snapshot(name=snapshot.OWN, recorded="", rows=(row,))
    return _refusal(row) or _Reference.of(_in_use((*snapshot.fetched(), mine))).refusal(row)


def _in_use(newer: Sequence[snapshot.Snapshot], device: str | None = None) -> Iterator[PriceRow]:
    """Yields the rows of all lists, or of those what is of one device, but those for which newer ones stand."""
    newer, packaged = (
        [replace(each, rows=tuple(row for row in each.rows if device in (None, row["device"]))) for each in lists]
        for lists in (newer, snapshot.packaged())
    )
    replaced = {_offer(row, own=each.name == snapshot.OWN) for each in newer for row in each.rows}
    older = (row for each in packaged for row in each.rows if not replaced & _offers(row))
    mine = {_offer(row, own=True) for each in newer if each.name == snapshot.OWN for row in each.rows}
    kept = (
        row for each in newer for row in each.rows if each.name == snapshot.OWN or _offer(row, own=True) not in mine
    )
    yield from older
    yield from kept


def _offer(row: PriceRow, *, own: bool) -> tuple[str, ...]:
    """Returns what a row stands for: a device of a cloud, and of the user's own list its kind and region alone."""
    names = ("device", "provider", "kind", "region") if own else ("device", "provider")
    return tuple(row[name] for name in names)


def _offers(row: PriceRow) -> set[tuple[str, ...]]:
    return {_offer(row, own=True), _offer(row, own=False)}


def days_old(price: Price, today: date) -> int | None:
    """Returns how old a price is at least; None where nobody knows."""
    try:
        return (today - date.fromisoformat(price.date)).days
    except ValueError:
        return None


def checked(rows: Iterable[PriceRow]) -> PriceList:
    """Sort rows into believable prices and refusals counted by reason.

    Args:
        rows: with keys device, provider, instance, kind, usd_per_device_hour, region, source, as_of, note; those that
            the user wrote also have ``where``, and are never left out.

    Raises:
        DataError: a price that the user wrote cannot be believed.
    """
    kept = list(rows)
    reference = _Reference.of(kept)
    prices: dict[str, list[Price]] = {}
    refused: Counter[str] = Counter()
    for row in kept:
        reason = _refusal(row) or reference.refusal(row)
        if reason is not None and "where" in row:
            seen = f"{format_hourly(_usd(row))} an hour of {row['device']}"
            fix = "mend or delete the line"
            raise DataError(
                "a price that cannot be believed: {reason}", where=row["where"], seen=seen, fix=fix, reason=reason
            )
        if reason is not None:
            refused[reason] += 1
            continue
        prices.setdefault(row["device"], []).append(
            Price(
                usd_per_device_hour=_usd(row),
                kind=_KINDS[row["kind"]],
                provider=row["provider"],
                region=row["region"],
                as_of=row["as_of"],
                source=row["source"] or row.get("where", ""),
                instance=row["instance"],
                date=snapshot.day_of(row),
                doubt=reference.doubt(row),
            )
        )
    return PriceList(prices={name: tuple(rows) for name, rows in prices.items()}, refused=dict(refused))


@cache
def _devices() -> frozenset[str]:
    return frozenset(device_names())


def _refusal(row: PriceRow) -> str | None:
    """Returns what is wrong with a row by itself."""
    usd = _usd(row)
    if not row.get("usd_per_device_hour"):
        return "no price printed"
    if math.isnan(usd):
        return "a price that is no number"
    if row["device"] not in _devices():
        return "device not in the catalogue"
    if row["kind"] not in _KINDS:
        return "unknown kind of price"
    if usd <= 0 or usd == PLACEHOLDER_USD:
        return "placeholder"
    if "accelerator part only" in row["note"]:
        return "host not included"
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reference:
    """Prices that a row is held against: its device's median; its instance's on demand, by region and anywhere."""

    median: Mapping[str, float]
    on_demand: Mapping[tuple[str, ...], float]

    @classmethod
    def of(cls, rows: Iterable[PriceRow]) -> _Reference:
        """References from the rows that are sound by themselves."""
        by_device: dict[str, list[float]] = {}
        on_demand: dict[tuple[str, ...], float] = {}
        for row in rows:
            if _refusal(row) is None:
                usd = _usd(row)
                by_device.setdefault(row["device"], []).append(usd)
                if row["kind"] == "on_demand":
                    cloud_wide = (row["device"], row["provider"])
                    anywhere = (*cloud_wide, row["instance"])
                    for key in (cloud_wide, anywhere, (*anywhere, row["region"])):
                        on_demand[key] = min(usd, on_demand.get(key, math.inf))
        # The lower of two middle ones: of two prices the wrong one must not define what is usual.
        median = {name: sorted(values)[(len(values) - 1) // 2] for name, values in by_device.items()}
        return cls(median=median, on_demand=on_demand)

    def refusal(self, row: PriceRow) -> str | None:
        """Returns what is wrong with a row beside others."""
        usd = _usd(row)
        if usd > _OUTLIER * self.median[row["device"]]:
            return f"more than {_OUTLIER} times the device's median"
        if row["kind"] == "on_demand" and usd < self.median[row["device"]] / _OUTLIER:
            return f"less than 1/{_OUTLIER} of the device's median"
        anywhere = (row["device"], row["provider"], row["instance"])
        full = self.on_demand.get((*anywhere, row["region"]), self.on_demand.get(anywhere))
        if row["kind"] == "spot" and full is not None:
            if usd >= full:
                return "spot not below on-demand"
            if abs(usd / full - _FLOOR) < 1e-4:
                return "spot at the provider's floor"
        return None

    def doubt(self, row: PriceRow) -> str:
        """Why a spot price is doubtful beside on-demand of its instance, else of its cloud; empty: it is not."""
        wide = (row["device"], row["provider"])
        full = self.on_demand.get((*wide, row["instance"]), self.on_demand.get(wide))
        if row["kind"] != "spot" or full is None or _usd(row) >= _NEAR_FLOOR * full:
            return ""
        return f"{_usd(row) / full:.0%} of on-demand, near the floor of spot prices: hardly to be had for long"


def _usd(row: PriceRow) -> float:
    """Returns the price; NaN where it is no finite number."""
    try:
        usd = float(row.get("usd_per_device_hour", ""))
    except ValueError:
        return math.nan
    return usd if math.isfinite(usd) else math.nan
