"""List, check, convert and compare the checkpoints of trainings, whatever layouts wrote them; torch is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Subcommands ls, verify, convert and diff."""
    ls = parser.add_subcommand("ls", "list checkpoints: step, size, layout, loss, and which are incomplete")
    ls.add_argument("place", nargs="?", default="runs", metavar="FOLDER", help="a training, or a workspace of some")
    verify = parser.add_subcommand("verify", "read every tensor and compare it with its digest")
    verify.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder step-...")
    convert = parser.add_subcommand("convert", "write the model alone, as one bundle that every command takes")
    convert.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder step-...")
    convert.add_argument("folder", metavar="FOLDER", help="where the bundle goes; it must not exist")
    convert.add_argument("--averaged", action="store_true", help="the moving average of the weights (train.ema)")
    diff = parser.add_subcommand("diff", "say which tensors of two checkpoints differ, and by how much")
    diff.add_argument("first", metavar="CHECKPOINT")
    diff.add_argument("second", metavar="CHECKPOINT")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    commands = {"ls": _ls, "verify": _verify, "convert": _convert, "diff": _diff}
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

    reader = CheckpointReader(_path(args.checkpoint))
    damages = [str(problem) for problem in reader.damages()]
    tensors = len(reader.index.model) + len(reader.index.optimizer)
    payload = {"checkpoint": reader.path, "tensors": tensors, "files": len(reader.index.files), "damages": damages}
    output.result(payload, lambda: show_check(reader.index, damages, output))
    return 1 if damages else 0


def _convert(args: argparse.Namespace, output: Output) -> int:
    from trainwright.artifact.checkpoint.conversion import convert
    from trainwright.core.units import format_bytes

    folder = _path(args.folder)
    size_bytes = convert(_path(args.checkpoint), folder, averaged=args.averaged)
    payload = {"checkpoint": args.checkpoint, "folder": folder, "size_bytes": size_bytes}
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
