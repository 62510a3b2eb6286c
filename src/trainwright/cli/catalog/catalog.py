"""Say what the catalogue knows: models, training software, how old its prices are; and fetch newer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Subcommands models, stacks, show and update."""
    models = parser.add_subcommand("models", "list the models that --model knows by name")
    models.add_argument("word", nargs="?", default="", metavar="WORD", help="only names that hold it")
    parser.add_subcommand("stacks", "list the training software that --stack knows, with how far predictions are off")
    parser.add_subcommand("show", "say which price lists are in use, how old they are, and which rows were refused")
    update = parser.add_subcommand("update", "fetch price lists of SkyPilot's format into your data folder")
    update.add_argument(
        "--from",
        dest="origins",
        action="append",
        default=[],
        metavar="FILE|FOLDER|URL",
        help="a CSV, or what holds <cloud>/vms.csv (default: SkyPilot's public catalogue); may be repeated",
    )
    update.add_argument(
        "--cloud", dest="clouds", action="append", default=[], metavar="NAME", help="only this cloud; may be repeated"
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    commands = {"models": _models, "stacks": _stacks, "show": _show, "update": _update}
    return commands[args.subcommand](args, Output.of(args))


def _models(args: argparse.Namespace, output: Output) -> int:
    from trainwright.core.errors import RecipeError
    from trainwright.hardware.catalogue.models import model_names, normalised, published_model
    from trainwright.render.catalog.models import model_document, show_models

    word = normalised(args.word)
    every = [published_model(name) for name in model_names()]
    models = [each for each in every if any(word in name for name in (each.name, *each.aliases))]
    if not models:
        raise RecipeError("no model by such a name", where="WORD", seen=repr(args.word), fix="leave it out for all")
    output.result({"models": [model_document(each) for each in models]}, lambda: show_models(models, output))
    return 0


def _stacks(_args: argparse.Namespace, output: Output) -> int:
    from trainwright.hardware.catalogue.stacks import offered, read_stack
    from trainwright.render.catalog.models import show_stacks, stack_document

    stacks = [read_stack(name) for name in offered()]
    output.result({"stacks": [stack_document(each) for each in stacks]}, lambda: show_stacks(stacks, output))
    return 0


def _show(_args: argparse.Namespace, output: Output) -> int:
    from trainwright.hardware.catalogue.devices import device_names
    from trainwright.hardware.catalogue.links import link_names
    from trainwright.hardware.prices import snapshot
    from trainwright.hardware.prices.clouds import clouds
    from trainwright.hardware.prices.price_list import price_list
    from trainwright.render.catalog.prices import Stock, show_stock, stock_document

    lists = (*snapshot.packaged(), *snapshot.fetched())
    stock = Stock.of(lists, price_list(), [each.title for each in clouds()])
    sizes = f"{len(device_names())} devices, {len(link_names())} links, {len(clouds())} clouds"
    output.result(stock_document(stock), lambda: show_stock(stock, output, sizes=sizes))
    return 0


def _update(args: argparse.Namespace, output: Output) -> int:
    from datetime import UTC, datetime

    from trainwright.core.errors import MachineError
    from trainwright.hardware.prices import snapshot
    from trainwright.hardware.prices.clouds import cloud
    from trainwright.hardware.prices.feed import update
    from trainwright.render.catalog.prices import show_update, update_document

    wanted = [cloud(name, where="--cloud") for name in args.clouds]
    results = update(args.origins, wanted, today=datetime.now(UTC).date().isoformat())
    good = [each for each in results if each.error is None]
    failed = [each for each in results if each.error is not None]
    if not good:
        newest = max(each.recorded for each in (*snapshot.packaged(), *snapshot.fetched()))
        raise MachineError(
            "no prices were fetched",
            seen=str(failed[0].error) if failed else "no list of a known cloud",
            fix=f"those of {newest} stay in use (trainwright catalog show)",
        )
    for each in failed:
        output.note(f"not updated: {each.cloud}: {each.error}")
    payload = {"updated": [update_document(each) for each in results]}
    output.result(payload, lambda: show_update(good, output, folder=snapshot.folder()))
    return 0
