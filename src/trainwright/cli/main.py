"""``trainwright``: finds the command, runs it, and turns what goes wrong into one line and an exit code.

Exit codes: 0 ok, 1 a check said no, 2 usage or recipe, 3 machine, 4 data, 5 training, 70 a defect of ours,
130 interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from trainwright import __version__
from trainwright.cli.output import error_output
from trainwright.cli.parser import CommandParser, add_common
from trainwright.core.errors import Interrupted, RecipeError, TrainwrightError
from trainwright.core.openmp import wait_briefly
from trainwright.core.registry import did_you_mean


class Command(NamedTuple):
    """A row of the table of commands; the module is imported only when the command is called."""

    module: str
    help: str


COMMANDS = {
    "run": Command("trainwright.cli.run", "do all that a recipe says, from corpus to served model"),
    "doctor": Command("trainwright.cli.doctor", "look at this machine and measure what it can do"),
    "plan": Command("trainwright.cli.plan", "say whether it fits, how long it takes and what it costs"),
    "recommend": Command("trainwright.cli.recommend", "say what to train on: devices, clouds, prices, layouts"),
    "data": Command("trainwright.cli.data", "turn a corpus into token shards"),
    "train": Command("trainwright.cli.train", "train the model"),
    "evaluate": Command("trainwright.cli.evaluate", "measure the trained model"),
    "audit": Command("trainwright.cli.audit", "hold the plan against what was measured"),
    "export": Command("trainwright.cli.export", "write the model for other tools"),
    "serve": Command("trainwright.cli.serve", "answer HTTP requests with the model"),
    "report": Command("trainwright.cli.report", "write one HTML page about a run"),
    "hardware": Command("trainwright.cli.hardware", "look up, show and compare accelerators"),
    "catalog": Command("trainwright.cli.catalog", "say how old prices are, and fetch newer ones"),
    "config": Command("trainwright.cli.config", "show, explain and check recipes"),
    "completion": Command("trainwright.cli.complete", "print a completion script for your shell"),
    "version": Command("trainwright.cli.version", "print versions"),
}

INTERRUPTED = Interrupted("interrupted; run the same command to continue")
DEFECT_EXIT_CODE = 70
BROKEN_PIPE_EXIT_CODE = 141


class CommandModule(Protocol):
    """What each command's module offers."""

    def configure(self, parser: CommandParser) -> None:
        """Add the command's own arguments; common ones are there already."""

    def run(self, args: object) -> int:
        """Do it and return the exit code."""


def help_text() -> str:
    """What ``trainwright --help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        (
            "usage: trainwright COMMAND [RECIPE.yaml ...] [KEY=VALUE ...] [options]",
            "",
            "Plans, prepares, trains, evaluates, exports and serves large models from one recipe.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  -h, --help  this text; after a command, the command's own",
            "  --version   print the version",
            "",
            "Begin with: trainwright run recipes/quickstart.yaml",
        )
    )


def parser_of(name: str) -> tuple[CommandModule, CommandParser]:
    """Import a command's module and build its parser."""
    command = COMMANDS[name]
    module = cast("CommandModule", importlib.import_module(command.module))
    parser = CommandParser(prog=f"trainwright {name}", description=module.__doc__)
    module.configure(parser)
    if not parser.subcommands:
        add_common(parser)
    return module, parser


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` name.

    Raises:
        TrainwrightError: of the command, or a RecipeError for arguments that are wrong.
    """
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(help_text())
        return 0
    if name == "--version":
        print(f"trainwright {__version__}")
        return 0
    if name not in COMMANDS:
        what = "an option before the command" if name.startswith("-") else "unknown command"
        fix = did_you_mean(name, COMMANDS) or "see: trainwright --help"
        raise RecipeError(what, seen=repr(name), expected="trainwright COMMAND ...", fix=fix)
    module, parser = parser_of(name)
    args = parser.parse_args(arguments[1:])
    args.command = parser.prog_of(args).removeprefix("trainwright ")
    return module.run(args)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing but ``SystemExit`` of ``--help`` escapes."""
    wait_briefly(os.environ)
    if argv is None:
        # A scheduler's or a container's SIGTERM ends work as Ctrl-C does: parts kept, processes ended, one line said.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or bool(os.environ.get("TRAINWRIGHT_DEBUG"))
    output = error_output(arguments)
    try:
        code = dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (head, a pager) has gone; a second flush at exit must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_EXIT_CODE
    except KeyboardInterrupt:
        output.error(INTERRUPTED, traceback=debug)
        return INTERRUPTED.exit_code
    except TrainwrightError as error:
        output.error(error, traceback=debug)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the outermost frame: a user gets a line, not a traceback
        defect = TrainwrightError(
            f"a defect in trainwright: {type(error).__name__}: {error}",
            fix="run it again with --debug for the traceback, and please report it",
        )
        output.error(defect, traceback=debug, code="defect", exit_code=DEFECT_EXIT_CODE)
        return DEFECT_EXIT_CODE
    return code
