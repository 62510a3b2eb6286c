"""Say what the catalogue knows: models, training software, how old its prices are; and fetch newer ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwright.cli.parser import CommandParser
    from trainwright.hardware.feed import Updated


def configure(parser: CommandParser) -> None:
    """Subcommands models, stacks, show and update."""
    models = parser.add_subcommand("models", "list the models that --model knows by name")
    models.add_argument("word", nargs="?", default="", metavar="WORD", help="only names that hold it")
    parser.add_subcommand("stacks", "list the training software that --stack knows, with how far predictions are off")
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
    commands = {"models": _models, "stacks": _stacks, "show": _show, "update": _update}
    return commands[args.subcommand](args, Output.of(args))


def _models(args: argparse.Namespace, output: Output) -> int:
    from trainwright.core.errors import RecipeError
    from trainwright.core.units import format_count
    from trainwright.hardware.models import model_names, normalised, published_model
    from trainwright.planner.parameters import active_parameters
    from trainwright.spec.model import ModelSpec

    word = normalised(args.word)
    every = [published_model(name) for name in model_names()]
    found = [each for each in every if any(word in name for name in (each.name, *each.aliases))]
    if not found:
        raise RecipeError("no model by such a name", where="WORD", seen=repr(args.word), fix="leave it out for all")
    rows, payload = [], []
    for each in found:
        model = each.spec if isinstance(each.spec, ModelSpec) else None
        active = each.parameters if model is None else active_parameters(model)
        payload.append({
            "name": each.name, "title": each.title, "aliases": each.aliases, "parameters": each.parameters,
            "active_parameters": active, "spec": each.spec, "source": each.source, "recorded": each.recorded,
        })  # fmt: skip
        rows.append((
            each.name, format_count(each.parameters), "" if active == each.parameters else format_count(active),
            "" if model is None else model.layers, "" if model is None else f"{model.width:,}",
            "" if model is None or model.kind == "vision" else f"{model.context_tokens:,}", each.title,
        ))  # fmt: skip
    columns = ("name", "parameters", "active", "layers", "width", "context", "title")
    output.result({"models": payload}, lambda: output.table(columns, rows))
    return 0


def _stacks(_args: argparse.Namespace, output: Output) -> int:
    from trainwright.hardware.stacks import read_stack, stack_names

    found = [read_stack(name) for name in stack_names()]
    payload = [
        {"name": each.name, "title": each.title, "states": each.states, "precision": each.precision,
         "aliases": each.aliases, "fit": each.fit, "time_spread": each.time.spread,
         "memory_spread": each.memory.spread, "source": each.source}
        for each in found
    ]  # fmt: skip
    rows = [
        (
            each.name, each.states, f"x {math.exp(each.time.spread):.2f}", f"x {math.exp(each.memory.spread):.2f}",
            *(each.fit.get(part, {}).get("rows", 0) for part in ("time", "memory")), each.title,
        )
        for each in found
    ]  # fmt: skip
    columns = ("name", "states", "time off by", "memory off by", "time rows", "memory rows", "title")

    def text() -> None:
        output.table(columns, rows)
        output.note("off by: one standard deviation; rows: published runs that its numbers were fitted to")

    output.result({"stacks": payload}, text)
    return 0


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
    doubtful = sum(bool(price.doubt) for found in prices.prices.values() for price in found)

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
        output.line(f"doubtful, used where there is no other: {doubtful} spot prices near their floor")
        output.note("newer prices: trainwright catalog update")

    payload = {
        "lists": [
            {"name": each.name, "recorded": each.recorded, "rows": len(each.rows), "path": each.path} for each in lists
        ],
        "offers": offers, "unknown": unknown, "refused": prices.refused,
        "doubtful": doubtful,
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
