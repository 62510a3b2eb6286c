"""Say how old the catalogue's prices are, and fetch newer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwright.cli.parser import CommandParser
    from trainwright.hardware.feed import Updated


def configure(parser: CommandParser) -> None:
    """Subcommands show and update."""
    parser.add_subcommand("show", "say which price lists are in use, how old they are, and which rows were refused")
    update = parser.add_subcommand("update", "fetch price lists of SkyPilot's format into your data folder")
    update.add_argument(
        "--from", dest="origins", action="append", default=[], metavar="FILE|FOLDER|URL",
        help="a CSV, or what holds <cloud>/vms.csv (default: SkyPilot's public catalogue); may be repeated",
    )  # fmt: skip
    update.add_argument(
        "--cloud", dest="clouds", action="append", default=[], metavar="NAME", help="only this cloud; may be repeated"
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    commands = {"show": _show, "update": _update}
    return commands[args.subcommand](args, Output.of(args))


def _show(_args: argparse.Namespace, output: Output) -> int:
    from trainwright.hardware import snapshot
    from trainwright.hardware.catalogue import device_names
    from trainwright.hardware.clouds import clouds
    from trainwright.hardware.links import link_names
    from trainwright.hardware.prices import price_list

    lists = (*snapshot.packaged(), *snapshot.fetched())
    prices = price_list()
    offers: dict[str, int] = {}
    for found in prices.prices.values():
        for price in found:
            offers[price.provider] = offers.get(price.provider, 0) + 1
    unknown = [each.title for each in clouds() if each.title not in offers]

    def text() -> None:
        output.line(f"{len(device_names())} devices, {len(link_names())} links, {len(clouds())} clouds")
        output.line()
        rows = [
            (each.name, each.recorded, _age(each.recorded), len(each.rows), str(each.path or "packaged"))
            for each in lists
        ]
        output.table(("price list", "date", "age", "rows", "where"), rows)
        output.line()
        output.table(("provider", "prices in use"), sorted(offers.items()))
        output.line()
        output.line(f"no price known: {', '.join(unknown)}")
        output.line(f"rows refused: {_counted(prices.refused)}")
        output.note("newer prices: trainwright catalog update")

    payload = {
        "lists": [
            {"name": each.name, "recorded": each.recorded, "rows": len(each.rows), "path": each.path} for each in lists
        ],
        "offers": offers, "unknown": unknown, "refused": prices.refused,
    }  # fmt: skip
    output.result(payload, text)
    return 0


def _update(args: argparse.Namespace, output: Output) -> int:
    from datetime import UTC, datetime

    from trainwright.core.errors import MachineError
    from trainwright.hardware import snapshot
    from trainwright.hardware.clouds import cloud
    from trainwright.hardware.feed import update

    wanted = [cloud(name, where="--cloud") for name in args.clouds]
    results = update(args.origins, wanted, today=datetime.now(UTC).date().isoformat())
    good = [each for each in results if each.error is None]
    failed = [each for each in results if each.error is not None]
    if not good:
        newest = max(each.recorded for each in (*snapshot.packaged(), *snapshot.fetched()))
        raise MachineError(
            "no prices were fetched", seen=str(failed[0].error) if failed else "no list in that folder",
            fix=f"those of {newest} stay in use (trainwright catalog show)",
        )  # fmt: skip

    def text() -> None:
        rows = [(each.cloud, each.offers, each.devices, _counted(each.refused or {})) for each in good]
        output.table(("cloud", "prices", "devices", "rows refused"), rows)
        output.line(f"written to {snapshot.folder()}")

    for each in failed:
        output.note(f"not updated: {each.cloud}: {each.error}")
    output.result({"updated": [_plain(each) for each in results]}, text)
    return 0


def _plain(each: Updated) -> dict[str, object]:
    return {
        "cloud": each.cloud, "source": each.source, "offers": each.offers, "devices": each.devices,
        "refused": each.refused, "path": each.path, "error": None if each.error is None else str(each.error),
    }  # fmt: skip


def _age(recorded: str) -> str:
    """``3 days``, ``today``, ``unknown``."""
    from datetime import UTC, date, datetime

    try:
        days = (datetime.now(UTC).date() - date.fromisoformat(recorded)).days
    except ValueError:
        return "unknown"
    if days < 1:
        return "today"
    return "1 day" if days == 1 else f"{days} days"


def _counted(refused: Mapping[str, int]) -> str:
    rows = sorted(refused.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} {reason}" for reason, count in rows) or "none"
