"""Show the catalogue of accelerators: rates, memory, links, power, software, prices, each with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from trainwright.cli.parser import CommandParser
    from trainwright.hardware.prices.price_list import PriceList
    from trainwright.spec.device import Price


OWN = "own"
"""The cloud of prices that stand in no list (``catalog/clouds/own.toml``)."""


def configure(parser: CommandParser) -> None:
    """Subcommands list, show and compare."""
    from trainwright.hardware.prices.cards import Order
    from trainwright.spec.device import DeviceKind

    listed = parser.add_subcommand("list", "list the devices of the catalogue")
    listed.add_argument("--kind", choices=get_args(DeviceKind), help="only devices of this kind (default: all but cpu)")
    listed.add_argument("--vendor", metavar="NAME", help="only devices of this vendor, for example NVIDIA")
    listed.add_argument("--min-memory", metavar="SIZE", help="only devices with this much memory, for example 80GB")
    listed.add_argument("--sort", choices=get_args(Order), default="name", help="what the best come first in")
    shown = parser.add_subcommand("show", "show all that is known of a device, and where each number comes from")
    shown.add_argument("device", metavar="DEVICE", help="a name as in the list, or as drivers and papers print it")
    compared = parser.add_subcommand("compare", "put devices side by side")
    compared.add_argument("devices", nargs="+", metavar="DEVICE", help="names of devices")
    priced = parser.add_subcommand("prices", "list the prices in use, or add one of your own: prices add")
    priced.add_argument("action", nargs="?", choices=("add",), help="put a price into your own list")
    priced.add_argument("--device", metavar="NAME", help="only this device, or whose price it is")
    priced.add_argument(
        "--cloud", metavar="NAME", help="only this cloud, or who asks it (added: own, of nobody listed)"
    )
    priced.add_argument("--region", metavar="NAME", help="only in this region, or where it holds: eu, us-east-1")
    priced.add_argument("--price-kind", metavar="KIND", help="on_demand, spot or reserved (added: on_demand)")
    priced.add_argument("--usd", metavar="USD", help="for a device and hour, in prices add")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from trainwright.hardware.prices.price_list import price_list

    commands = {"list": _list, "show": _show, "compare": _compare, "prices": _prices}
    return commands[args.subcommand](args, Output.of(args), price_list())


def _list(args: argparse.Namespace, output: Output, prices: PriceList) -> int:
    from trainwright.hardware.prices.cards import cards
    from trainwright.render.catalog.devices import card_document, show_list

    try:
        if args.min_memory is not None and args.min_memory.strip().isdigit():  # whoever writes 80 means no bytes
            raise RecipeError("a size needs its unit", seen=repr(args.min_memory), expected="for example 80GiB")
        smallest = parse_bytes(args.min_memory or 0)
    except RecipeError as error:
        raise error.at("--min-memory") from error
    listed = cards(prices, kind=args.kind, vendor=args.vendor, min_memory_bytes=smallest, order=args.sort)
    output.result({"devices": [card_document(card) for card in listed]}, lambda: show_list(listed, output))
    return 0


def _show(args: argparse.Namespace, output: Output, prices: PriceList) -> int:
    from trainwright.hardware.catalogue.nodes import cluster, node_size
    from trainwright.hardware.prices.cards import card
    from trainwright.render.catalog.devices import device_document, show_device

    shown = card(args.device, prices, where="DEVICE")
    pair = cluster(f"2x{node_size(shown.device.name)}x{shown.device.name}")
    output.result(device_document(shown, pair, prices), lambda: show_device(shown, pair, prices, output))
    return 0


def _compare(args: argparse.Namespace, output: Output, prices: PriceList) -> int:
    from trainwright.hardware.prices.cards import card
    from trainwright.render.catalog.devices import card_document, show_comparison

    compared = [card(name, prices, where="DEVICE") for name in args.devices]
    output.result({"devices": [card_document(each) for each in compared]}, lambda: show_comparison(compared, output))
    return 0


def _prices(args: argparse.Namespace, output: Output, prices: PriceList) -> int:
    from trainwright.hardware.catalogue.devices import device
    from trainwright.hardware.prices.clouds import cloud
    from trainwright.pipeline.question_fields import names, one_of, regions
    from trainwright.render.catalog.prices import price_document, show_prices
    from trainwright.spec.device import PriceKind

    name = None if args.device is None else device(args.device, where="--device").name
    seller = None if args.cloud is None else cloud(args.cloud, where="--cloud")
    adds = args.action == "add"
    try:
        kind = None if args.price_kind is None else one_of(args.price_kind, get_args(PriceKind))
    except RecipeError as error:
        raise error.at("--price-kind") from error
    try:
        where = None if args.region is None else (names if adds else regions)(args.region)
    except RecipeError as error:
        raise error.at("--region") from error
    if adds and where is not None and len(where) > 1:
        raise RecipeError("a price holds in one region", where="--region", seen=args.region, fix="add it for each")
    if adds:
        return _add(args, output, name, (seller or cloud(OWN)).title, kind or "on_demand")
    if args.usd is not None:
        raise RecipeError("a price to add", where="--usd", fix="trainwright hardware prices add --usd ...")
    provider = None if seller is None else seller.slug
    listed = _listed(prices, name, provider, where, kind)
    nothing = "" if listed else _nothing(args, prices, (name, provider, where, kind))
    payload = {"prices": [price_document(each, price) for each, price in listed]}
    output.result(payload, lambda: show_prices(listed, output, nothing))
    return 0 if listed else 1


def _listed(
    prices: PriceList, name: str | None, provider: str | None, where: Sequence[str] | None, kind: str | None
) -> list[tuple[str, Price]]:
    """Returns devices and prices that pass every filter; None passes all."""
    return [
        (each, price)
        for each in ([name] if name else sorted(prices.prices))
        for price in prices.offers(each, providers=None if provider is None else [provider], regions=where)
        if kind is None or price.kind == kind
    ]


def _nothing(
    args: argparse.Namespace,
    prices: PriceList,
    asked: tuple[str | None, str | None, Sequence[str] | None, str | None],
) -> str:
    """Returns the line that names the filter which no price passes."""
    from trainwright.render.catalog.prices import no_price

    name, provider, where, kind = asked
    alone = (
        (f"--device {args.device}", name, (name, None, None, None)),
        (f"--cloud {args.cloud}", provider, (None, provider, None, None)),
        (f"--region {args.region}", where, (None, None, where, None)),
        (f"--price-kind {args.price_kind}", kind, (None, None, None, kind)),
    )
    given = [(text, only) for text, value, only in alone if value is not None]
    return no_price([text for text, _ in given], [text for text, only in given if not _listed(prices, *only)])


def _add(args: argparse.Namespace, output: Output, device: str | None, seller: str, kind: str) -> int:
    from datetime import UTC, datetime

    from trainwright.core.money import parse_usd
    from trainwright.hardware.prices import snapshot
    from trainwright.hardware.prices.price_list import refusal
    from trainwright.pipeline.question_fields import devices_priced

    for option, value in (("--device", device), ("--usd", args.usd)):
        if value is None:
            raise RecipeError("a price needs its device and its dollars", where=option)
    try:
        usd = parse_usd(args.usd) / devices_priced(args.device)
        if usd == 0:
            raise RecipeError("a price is above zero", seen=repr(args.usd))
    except RecipeError as error:
        raise error.at("--usd") from error
    today = datetime.now(UTC).date().isoformat()
    row = {
        "device": str(device),
        "provider": seller,
        "kind": kind,
        "usd_per_device_hour": f"{usd:.6g}",
        "region": (args.region or "").strip(),
        "source": "added by hand",
        "as_of": today,
        "date": today,
    }
    if (reason := refusal({"instance": "", "note": "", **row})) is not None:
        raise RecipeError(
            "this price would stand in no list: {reason}", where="--usd", seen=repr(args.usd), reason=reason
        )
    path = snapshot.add(row)
    output.result({"added": row, "path": path}, lambda: output.line(f"written to {path}"))
    return 0
