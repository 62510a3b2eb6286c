"""List, check, convert, average and compare the checkpoints of trainings of any layouts, without torch; read PEFT's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.core.errors import DataError, RecipeError

LAST = 5
"""Checkpoints whose weights are averaged where nobody says how many (Vaswani et al., 2017, section 6.1)."""

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Subcommands ls, verify, convert, average, adapters and diff."""
    ls = parser.add_subcommand("ls", "list checkpoints: step, size, layout, loss, and which are whole by their sizes")
    ls.add_argument("place", nargs="?", default="runs", metavar="FOLDER", help="a training, or a workspace of some")
    verify = parser.add_subcommand("verify", "read every tensor and compare it with its digest")
    verify.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="folders step-...")
    convert = parser.add_subcommand("convert", "write the model alone, as one bundle that every command takes")
    convert.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder step-...")
    convert.add_argument("folder", metavar="FOLDER", help="where the bundle goes; it must not exist")
    convert.add_argument("--averaged", action="store_true", help="the moving average of the weights (train.ema)")
    mean = parser.add_subcommand("average", "write the mean of the weights of several checkpoints, as one bundle")
    mean.add_argument(
        "checkpoints", nargs="+", metavar="CHECKPOINT", help="folders step-..., or one training, whose last ones count"
    )
    mean.add_argument("--last", type=int, metavar="N", help="how many of a training (default: 5)")
    mean.add_argument("--into", required=True, metavar="FOLDER", help="where the bundle goes; it must not exist")
    adapters = parser.add_subcommand("adapters", "read adapters that PEFT wrote, as a model that every command takes")
    adapters.add_argument("peft", metavar="PEFT", help="a folder with adapter_config.json")
    adapters.add_argument("folder", metavar="FOLDER", help="where the model goes; it must not exist")
    adapters.add_argument("--base", metavar="MODEL", help="what they stand beside (default: what PEFT names)")
    diff = parser.add_subcommand("diff", "say which tensors of two checkpoints differ, and by how much")
    diff.add_argument("first", metavar="CHECKPOINT")
    diff.add_argument("second", metavar="CHECKPOINT")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    commands = {
        "ls": _ls,
        "verify": _verify,
        "convert": _convert,
        "average": _average,
        "adapters": _adapters,
        "diff": _diff,
    }
    return commands[args.subcommand](args, Output.of(args))


def _path(text: str) -> Path:
    from trainwright.core.paths import local_path

    return local_path(text)


def _ls(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.listing import list_checkpoints
    from trainwright.render.results.checkpoints import show_list

    found = list_checkpoints(_path(args.place))
    output.result({"checkpoints": found}, lambda: show_list(found, output))
    return 0


def _verify(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.reader import CheckpointReader
    from trainwright.render.results.checkpoints import show_check

    places = [_path(text) for text in args.checkpoints]
    alone, found, shown = len(places) == 1, [], []
    for place in places:
        try:
            reader = CheckpointReader(place)
        except DataError as error:
            if alone:
                raise
            found.append({"checkpoint": place, "damages": [str(error)]})
            shown.append(partial(output.line, str(error)))
            continue
        damages = [str(problem) for problem in reader.damages()]
        tensors, files = len(reader.index.model) + len(reader.index.optimizer), len(reader.index.files)
        found.append({"checkpoint": reader.path, "tensors": tensors, "files": files, "damages": damages})
        shown.append(partial(show_check, reader.index, damages, output, name="" if alone else str(place)))

    def show() -> None:
        for each in shown:
            each()

    output.result({"checkpoints": found}, show)
    return DataError.exit_code if any(each["damages"] for each in found) else 0


def _convert(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.conversion import convert
    from trainwright.core.units import format_bytes

    folder = _path(args.folder)
    size_bytes = convert(_path(args.checkpoint), folder, averaged=args.averaged)
    payload = {"checkpoint": args.checkpoint, "folder": folder, "size_bytes": size_bytes}
    output.result(payload, lambda: output.line(f"{folder}: {format_bytes(size_bytes)}; use it as model.init_from"))
    return 0


def _average(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.conversion import average
    from trainwright.artifact.checkpoint.index import is_checkpoint
    from trainwright.artifact.checkpoint.listing import last_checkpoints
    from trainwright.core.units import format_bytes

    folder, places = _path(args.into), [_path(text) for text in args.checkpoints]
    if args.last is not None and args.last < 2:
        raise RecipeError("a mean is of several checkpoints", where="--last", seen=args.last, expected="2 or more")
    if len(places) == 1 and not is_checkpoint(places[0]):
        places = last_checkpoints(places[0], LAST if args.last is None else args.last)
    elif args.last is not None:
        raise RecipeError("--last is of one training", seen=f"{len(places)} places", fix="name the training")
    size_bytes = average(places, folder)
    payload = {"checkpoints": places, "folder": folder, "size_bytes": size_bytes}
    steps = ", ".join(place.name for place in places)
    said = f"{folder}: {format_bytes(size_bytes)}, the mean of {steps}; use it as model.init_from"
    output.result(payload, lambda: output.line(said))
    return 0


def _adapters(args: argparse.Namespace, output: Output) -> int:
    from trainwright.core.registry import load
    from trainwright.core.units import format_bytes

    folder, read = _path(args.folder), load("trainwright.model.adapters.imported:import_adapters", kind="adapter")
    size_bytes = read(_path(args.peft), folder, base=args.base)
    payload = {"peft": args.peft, "folder": folder, "size_bytes": size_bytes}
    output.result(payload, lambda: output.line(f"{folder}: {format_bytes(size_bytes)}; use it as model.init_from"))
    return 0


def _diff(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.difference import differences
    from trainwright.render.results.checkpoints import show_differences

    found = list(differences(_path(args.first), _path(args.second)))
    output.result(
        {"first": args.first, "second": args.second, "differences": found}, lambda: show_differences(found, output)
    )
    return 1 if found else 0
