"""Show the catalogue of accelerators: rates, memory, links, power, software, prices, each with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_bytes

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser
    from trainwright.hardware.prices.price_list import PriceList


def configure(parser: CommandParser) -> None:
    """Subcommands list, show and compare."""
    from trainwright.hardware.prices.cards import Order
    from trainwright.spec.device import DeviceKind

    listed = parser.add_subcommand("list", "list the devices of the catalogue")
    listed.add_argument("--kind", choices=get_args(DeviceKind), help="only devices of this kind")
    listed.add_argument("--vendor", metavar="NAME", help="only devices of this vendor, for example NVIDIA")
    listed.add_argument("--min-memory", metavar="SIZE", help="only devices with this much memory, for example 80GB")
    listed.add_argument("--sort", choices=get_args(Order), default="name", help="what the best come first in")
    shown = parser.add_subcommand("show", "show all that is known of a device, and where each number comes from")
    shown.add_argument("device", metavar="DEVICE", help="a name as in the list, or as drivers and papers print it")
    compared = parser.add_subcommand("compare", "put devices side by side")
    compared.add_argument("devices", nargs="+", metavar="DEVICE", help="names of devices")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from trainwright.hardware.prices.price_list import price_list

    commands = {"list": _list, "show": _show, "compare": _compare}
    return commands[args.subcommand](args, Output.of(args), price_list())


def _list(args: argparse.Namespace, output: Output, prices: PriceList) -> int:
    from trainwright.hardware.prices.cards import cards
    from trainwright.render.catalog.devices import card_document, show_list

    try:
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
