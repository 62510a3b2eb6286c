"""Accelerators as tables: a list, one with the source of each number, several side by side."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainwright.core.money import format_hourly
from trainwright.core.units import format_bytes
from trainwright.hardware.catalogue.efficiency import matmul_share
from trainwright.hardware.catalogue.energy import HOST_POWER_SHARE, PUE, energy
from trainwright.hardware.catalogue.nodes import DEFAULTS
from trainwright.render.catalog.prices import old_prices
from trainwright.render.page import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.hardware.prices.cards import Card
    from trainwright.hardware.prices.price_list import PriceList
    from trainwright.spec.device import ClusterSpec, DeviceSpec, LinkSpec, Price, PriceKind

    Fact = tuple[str, str, str]


UNKNOWN = "unknown"


DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


def card_document(card: Card) -> dict[str, Any]:
    """Returns the JSON document of a device."""
    fields = {field.name: getattr(card.device, field.name) for field in dataclasses.fields(card.device)}
    return fields | {
        "platform": card.device.platform,
        "prices": card.prices,
        "flops_per_usd": card.flops_per_usd,
        "flops_per_s_per_w": card.flops_per_s_per_w,
        "building_w": card.building_w,
    }


def device_document(card: Card, pair: ClusterSpec, prices: PriceList) -> dict[str, Any]:
    """Returns the JSON document of one device in a cluster of two of its nodes, with all offers."""
    name = card.device.name
    return card_document(card) | {
        "node": pair.node,
        "scale_out": pair.scale_out,
        "origins": pair.origins,
        "offers": prices.offers(name),
        "unpriced": [entry._asdict() for entry in prices.unpriced(name)],
    }


def show_list(cards: Sequence[Card], page: Page) -> None:
    """Shows a row for each device."""
    if not cards:
        page.line("no such device in the catalogue")
        return
    columns = ("device", "year", "memory", "bandwidth", "16-bit dense", "power", "cooling", "platform", "price")
    page.table(columns, [_row(card) for card in cards])
    page.note(f"{len(cards)} devices; prices: cheapest on-demand that is known, per device and hour")
    _note_ages(page, [card.prices["on_demand"] for card in cards if "on_demand" in card.prices])


def show_device(card: Card, pair: ClusterSpec, prices: PriceList, page: Page) -> None:
    """Shows one device, its node, its prices, and the sources of all numbers."""
    spec = card.device
    sources: list[str] = []
    page.heading(f"{spec.name} ({spec.vendor}, {spec.year})")
    if spec.note:
        page.line(f"note: {spec.note}")
    page.line()
    page.table(("of one device", "value", "source"), _numbered((*_facts(spec), *_derived(card)), sources))
    page.line()
    page.table(("in a node", "value", "source"), _numbered(_node(pair), sources))
    page.line()
    _prices(spec.name, prices, sources, page)
    page.line()
    page.line("sources")
    for number, source in enumerate(sources, start=1):
        page.line(f"  [{number}] {source}")


def show_comparison(cards: Sequence[Card], page: Page) -> None:
    """Shows a column for each device."""
    page.table(("", *(card.device.name for card in cards)), _compared(cards))
    page.note("dense rates; prices: cheapest that is known, per device and hour; -: no rate known")
    _note_ages(page, [price for card in cards for price in card.prices.values()])


def _note_ages(page: Page, prices: Sequence[Price]) -> None:
    if (text := old_prices(prices)) is not None:
        page.note(text)


def _row(card: Card) -> tuple[str, ...]:
    spec = card.device
    price = card.prices.get("on_demand")
    return (
        spec.name,
        str(spec.year or UNKNOWN),
        _gigabytes(spec.memory_bytes),
        _rate(spec.bytes_per_s),
        _tera(card.flops_per_s),
        _watts(spec.tdp_w),
        "/".join(spec.cooling),
        spec.platform,
        UNKNOWN if price is None else f"{format_hourly(price.usd_per_device_hour)} {price.provider}",
    )


_WORDS_OF_ACCELERATORS = ("multiprocessors", "boost clock", "L2 cache")
_WORDS_OF_PROCESSORS = ("cores", "base clock", "last cache")


def _facts(spec: DeviceSpec) -> list[Fact]:
    """Returns what its datasheet says, each with its source and the day it was written down."""

    def fact(name: str, value: str, field: str) -> Fact:
        return name, value, f"{spec.sources.get(field, spec.source)}; {spec.recorded}"

    shared = ", shared with the host" if spec.unified_memory else ""
    rows = [
        fact("memory", _gigabytes(spec.memory_bytes) + shared, "memory_bytes"),
        fact("memory bandwidth", _rate(spec.bytes_per_s), "bytes_per_s"),
    ]
    known = [dtype for dtype in DTYPES if dtype in spec.flops_per_s]
    rows += [fact(f"{dtype}, dense", _tera(spec.flops_per_s[dtype]), dtype) for dtype in known]
    if missing := [dtype for dtype in DTYPES if dtype not in spec.flops_per_s]:
        rows.append((", ".join(missing), "no rate known", ""))
    if (share := matmul_share(spec)) is not None:
        measured = f"{_tera(spec.matmul_flops_per_s)}, {share:.1%} of the peak"
        rows.append(fact("bf16, matrix products measured", measured, "matmul_flops_per_s"))
    rows.append(fact("power", _watts(spec.tdp_w), "tdp_w") if spec.tdp_w else ("power", UNKNOWN, ""))
    rows.append(fact("cooling", " or ".join(spec.cooling), "cooling"))
    units, clock, cache = _WORDS_OF_PROCESSORS if spec.kind == "cpu" else _WORDS_OF_ACCELERATORS
    for name, value, field in (
        (units, spec.sm_count, "sm_count"),
        (clock, f"{spec.clock_hz / 1e6:,.0f} MHz" if spec.clock_hz else None, "clock_hz"),
        (cache, format_bytes(spec.l2_bytes) if spec.l2_bytes else None, "l2_bytes"),
        ("compute capability", spec.compute_capability, "compute_capability"),
    ):
        if value is not None:
            rows.append(fact(name, str(value), field))
    rows.append(fact("software", f"{spec.platform}: {', '.join(spec.software)}", "software"))
    return rows


def _derived(card: Card) -> list[Fact]:
    power = f"default: rated power x {1 + HOST_POWER_SHARE} for the host x {PUE} for the building"
    heat = f"default: rated power x {1 + HOST_POWER_SHARE} for the host, all of which becomes heat"
    dtype = card.dtype or "16-bit"
    rows = [
        (f"{dtype} per dollar", _per_dollar(card), "derived: dense rate / cheapest on-demand price"),
        (f"{dtype} per watt", _per_watt(card), "derived: dense rate / rated power"),
        ("power in all", _watts(card.building_w), power),
        ("heat", _heat(card), heat),
    ]
    return [(name, value, "" if value == UNKNOWN else source) for name, value, source in rows]


def _node(pair: ClusterSpec) -> list[Fact]:
    node, origin = pair.node, pair.origins
    reach = node.scale_up_devices or node.devices

    def source(field: str, text: str) -> str:
        return DEFAULTS.get(field, node.source) if origin[field] == "default" else text

    rows = [("devices", f"{node.devices} ({node.name})", node.source)]
    if node.scale_up and reach > 1:
        rows.append(("scale-up", f"{_link(node.scale_up)}, {reach} devices", source("scale_up", node.scale_up.source)))
    if node.bus:
        rows.append(("bus", _link(node.bus), source("bus", node.bus.source)))
    if pair.scale_out:
        rows.append(("scale-out", f"{_link(pair.scale_out)} each", source("scale_out", pair.scale_out.source)))
    memory = _gigabytes(node.host_memory_bytes) if node.host_memory_bytes else "the device's own"
    rows.append(("host memory", memory, source("host_memory_bytes", node.source)))
    rows.append(("CPU cores", str(node.cpu_cores), source("cpu_cores", node.source)))
    if node.disk_bytes_per_s:
        rows.append(("local disk", _rate(node.disk_bytes_per_s), source("disk_bytes_per_s", node.source)))
    if node.nvme_bytes and node.nvme_read_bytes_per_s and node.nvme_write_bytes_per_s:
        rate = f"reads {_rate(node.nvme_read_bytes_per_s)}, writes {_rate(node.nvme_write_bytes_per_s)}"
        rows.append(("NVMe", _gigabytes(node.nvme_bytes), source("nvme_bytes", node.source)))
        rows.append(("NVMe together", rate, source("nvme_bytes_per_s", node.source)))
    return rows


def _numbered(facts: Sequence[Fact], sources: list[str]) -> list[Fact]:
    """Returns the same facts with a number in place of each source; new ones are added to ``sources``."""
    return [(name, value, _number(source, sources) if source else "") for name, value, source in facts]


def _number(source: str, sources: list[str]) -> str:
    if source not in sources:
        sources.append(source)
    return f"[{sources.index(source) + 1}]"


def _prices(name: str, prices: PriceList, sources: list[str], page: Page) -> None:
    """Shows the cheapest price of each kind and provider; what is rented at an unknown price."""
    offers, unpriced = prices.offers(name), prices.unpriced(name)
    if not offers and not unpriced:
        page.line("rental price: unknown")
        return
    cheapest: dict[tuple[str, str], Price] = {}
    for price in offers:
        cheapest.setdefault((price.kind, price.provider), price)
    rows = []
    for price in cheapest.values():
        doubt = " (doubtful)" if price.doubt else ""
        usd, kind = f"{format_hourly(price.usd_per_device_hour)}{doubt}", price.kind.replace("_", "-")
        source = _number(f"{price.source}@{price.as_of}", sources)
        rows.append((usd, kind, price.provider, price.instance, price.region, source))
    rows += [(UNKNOWN, "", each.provider, each.instance, "", "") for each in unpriced]
    page.table(("per hour", "kind", "provider", "instance", "region", "source"), rows)
    if len(offers) > len(cheapest):
        page.note(f"the cheapest of each kind and provider; all {len(offers)}: hardware prices --device {name}")
    _note_ages(page, list(cheapest.values()))


def _compared(cards: Sequence[Card]) -> list[tuple[str, ...]]:
    specs = [each.device for each in cards]
    dtypes = [dtype for dtype in DTYPES if any(dtype in spec.flops_per_s for spec in specs)]
    rates = [
        (dtype, *(_tera(spec.flops_per_s[dtype]) if dtype in spec.flops_per_s else "-" for spec in specs))
        for dtype in dtypes
    ]
    return [
        ("year", *(str(spec.year or UNKNOWN) for spec in specs)),
        ("memory", *(_gigabytes(spec.memory_bytes) for spec in specs)),
        ("bandwidth", *(_rate(spec.bytes_per_s) for spec in specs)),
        *rates,
        ("link", *map(_connection, specs)),
        ("power", *(_watts(spec.tdp_w) for spec in specs)),
        ("power in all", *(_watts(each.building_w) for each in cards)),
        ("cooling", *("/".join(spec.cooling) for spec in specs)),
        ("platform", *(spec.platform for spec in specs)),
        ("software", *(", ".join(spec.software) for spec in specs)),
        ("on-demand", *(_price(each, "on_demand") for each in cards)),
        ("spot", *(_price(each, "spot") for each in cards)),
        ("reserved", *(_price(each, "reserved") for each in cards)),
        ("16-bit per dollar", *map(_per_dollar, cards)),
        ("16-bit per watt", *map(_per_watt, cards)),
    ]


def _price(card: Card, kind: PriceKind) -> str:
    price = card.prices.get(kind)
    return UNKNOWN if price is None else f"{format_hourly(price.usd_per_device_hour)} {price.provider}"


def _gigabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.4g} GB"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.4g} GB/s" if bytes_per_s < 1e12 else f"{bytes_per_s / 1e12:.3g} TB/s"


def _tera(flops_per_s: float | None) -> str:
    return UNKNOWN if flops_per_s is None else f"{flops_per_s / 1e12:,.4g} TFLOP/s"


def _watts(power_w: float | None) -> str:
    return UNKNOWN if power_w is None else f"{power_w:,.0f} W"


def _per_dollar(card: Card) -> str:
    return UNKNOWN if card.flops_per_usd is None else f"{card.flops_per_usd / 1e18:.3g} EFLOP/$"


def _per_watt(card: Card) -> str:
    return UNKNOWN if card.flops_per_s_per_w is None else f"{card.flops_per_s_per_w / 1e12:.3g} TFLOP/s/W"


def _heat(card: Card) -> str:
    use = energy(card.device, 1, 3600)
    return UNKNOWN if use is None else f"{use.heat_btu_per_hour:,.0f} BTU/h"


def _link(link: LinkSpec) -> str:
    return f"{link.name}, {_rate(link.bytes_per_s)}"


def _connection(spec: DeviceSpec) -> str:
    if spec.link is not None:
        return _link(spec.link)
    return "none" if spec.pcie_generation is None else f"PCIe {spec.pcie_generation} only"
