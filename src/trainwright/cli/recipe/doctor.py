"""Look at this machine and measure what it can do: matrix products, memory, attention, updates, disk.

What is measured belongs to the machine: it is kept for all recipes and measured once, in a few seconds; --thorough
takes a quarter of a minute. With a recipe the record is copied to its workspace, which keeps what it was planned by.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe, add_workspace, chosen_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser

if TYPE_CHECKING:
    from trainwright.hardware.machine.record import Machine


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)
    parser.add_argument("--fresh", action="store_true", help="measure again, whatever is kept")
    parser.add_argument("--thorough", action="store_true", help="measure more shapes, for longer")


def run(args: argparse.Namespace) -> int:
    """Examine the machine and print the record."""
    output = Output.of(args)
    if args.inputs or args.preset:
        machine = _of_workspace(args, output)
    else:
        machine = _of_machine(args, output, workspace=chosen_workspace(args))
    # Records need pydantic, which --help must not wait for.
    from trainwright.core.records import to_json
    from trainwright.render.results.machine import show

    output.result(to_json(machine), lambda: show(machine, output, now_unix_s=time.time()))
    return 0


def _of_workspace(args: argparse.Namespace, output: Output) -> Machine:
    """Returns the record in the recipe's workspace, copied anew where measurements are asked for."""
    from trainwright.hardware.machine.record import FILE, read_machine
    from trainwright.pipeline import runner

    recipe = load_recipe(args).value
    root = workspace_of(args, name=recipe.name)
    if args.fresh or args.thorough:
        _of_machine(args, output, workspace=root)
        for artifact in runner.find(recipe, root=root, upto="doctor").values():
            shutil.rmtree(artifact.path)
    with output.progress() as progress:
        made = runner.run(recipe, root=root, upto="doctor", listeners=(progress,))
    made["doctor"].verify()
    return read_machine(made["doctor"].file(FILE))


def _of_machine(args: argparse.Namespace, output: Output, *, workspace: Path | None) -> Machine:
    """Returns the machine's record, measured where it is absent or asked for, on the workspace's disk or here."""
    from trainwright.artifact.events import Events
    from trainwright.core.registry import load

    examine = load("trainwright.stages.doctor:examine", kind="stage")
    with output.progress() as progress:
        machine: Machine = examine(
            workspace or Path.cwd(),
            Events(None, run="doctor", listeners=(progress,)),
            fallback=workspace,
            fresh=args.fresh,
            thorough=args.thorough,
        )
    return machine
