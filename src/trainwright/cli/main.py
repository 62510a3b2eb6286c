"""``trainwright``: finds the command, runs it, and turns what goes wrong into one line and an exit code.

Exit codes: 0 ok, 1 a check said no, 2 usage or recipe, 3 machine, 4 data, 5 training, 70 a defect of ours,
129 the terminal closed (SIGHUP), 130 interrupted (Ctrl-C), 138 the time is nearly over (SIGUSR1), 141 the reader of our
output went away, 143 terminated (SIGTERM).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol, cast

from trainwright import __version__
from trainwright.cli import streams, tables
from trainwright.cli.heap import begin_again, glibc_version, join_freed_blocks
from trainwright.cli.output import error_output
from trainwright.cli.parser import CommandParser, add_common
from trainwright.core.environment import spare_autoload, start_no_threads, wait_briefly
from trainwright.core.errors import (
    MACHINE_ERRNOS,
    HungUp,
    Interrupted,
    MachineError,
    RecipeError,
    Terminated,
    TrainwrightError,
    Warned,
)
from trainwright.core.spelling import did_you_mean


class Command(NamedTuple):
    """A row of the table of commands; the module is imported only when the command is called."""

    module: str
    help: str


COMMANDS = {
    "init": Command("trainwright.cli.recipe.init", "write a recipe from three answers: task, model, data"),
    "recipes": Command("trainwright.cli.catalog.recipes", "list the recipes that come along, and write one out"),
    "run": Command("trainwright.cli.recipe.run", "do all that a recipe says, from corpus to served model"),
    "doctor": Command("trainwright.cli.recipe.doctor", "look at this machine and measure what it can do"),
    "plan": Command("trainwright.cli.plan.plan", "say whether it fits, how long it takes and what it costs"),
    "recommend": Command("trainwright.cli.plan.recommend", "say what to train on: devices, clouds, prices, layouts"),
    "data": Command("trainwright.cli.recipe.data", "turn a corpus into token shards"),
    "train": Command("trainwright.cli.recipe.train", "train the model"),
    "optimize": Command("trainwright.cli.recipe.optimize", "make training faster, one measured technique at a time"),
    "profile": Command("trainwright.cli.recipe.profile", "show where the time of a few steps goes"),
    "evaluate": Command("trainwright.cli.recipe.evaluate", "measure the trained model"),
    "audit": Command("trainwright.cli.recipe.audit", "hold the plan against what was measured"),
    "export": Command("trainwright.cli.recipe.export", "write the model for other tools"),
    "serve": Command("trainwright.cli.recipe.serve", "answer HTTP requests with the model"),
    "chat": Command("trainwright.cli.artifacts.chat", "talk to a model in the terminal"),
    "events": Command("trainwright.cli.recipe.events", "write a run's numbers for TensorBoard, MLflow or W&B"),
    "report": Command("trainwright.cli.recipe.report", "write one HTML page about a run"),
    "checkpoint": Command("trainwright.cli.artifacts.checkpoint", "list, check, convert and compare checkpoints"),
    "hardware": Command("trainwright.cli.catalog.hardware", "look up, show and compare accelerators"),
    "catalog": Command("trainwright.cli.catalog.catalog", "say how old prices are, and fetch newer ones"),
    "config": Command("trainwright.cli.recipe.config", "show, explain and check recipes"),
    "completion": Command("trainwright.cli.shell.complete", "print a completion script for your shell"),
    "version": Command("trainwright.cli.shell.version", "print versions"),
}

ANSWERS = frozenset(("plan", "recommend", "hardware"))
"""Commands that compute an answer with numpy's elementwise functions, and end: of what they make little is garbage, and
looking for it among all that they load takes a tenth of a plan's time."""
TRAINING = ("run", "train", "profile")
"""Commands that train in their own process, which must begin with the environment that training wants."""

STOPS = {
    signal.SIGINT: Interrupted("interrupted; run the same command to continue"),
    signal.SIGTERM: Terminated("terminated; run the same command to continue"),
    signal.SIGHUP: HungUp("the terminal closed; run the same command to continue"),
    signal.SIGUSR1: Warned("the time is nearly over (SIGUSR1); run the same command to continue"),
}
BROKEN_PIPE_EXIT_CODE = 141
_TORCH_MEMORY = re.compile(r"tried to allocate [\d.]+ \w+|storage size calculation overflowed", re.IGNORECASE)
"""Of torch's errors where memory does not do: on a processor they are plain ones, and torch is not imported here."""


class Defect(TrainwrightError):
    """A mistake of ours."""

    exit_code = 70


class CommandModule(Protocol):
    """The functions that each command's module has."""

    def configure(self, parser: CommandParser) -> None:
        """Add the command's own arguments; common ones are there already."""

    def run(self, args: object) -> int:
        """Do it and return the exit code."""


def help_text(*, width: int | None = None) -> str:
    """Returns what ``trainwright --help`` prints on a terminal of ``width`` columns."""
    longest = max(map(len, COMMANDS))
    lines = [f"  {name:<{longest}}  {command.help}" for name, command in COMMANDS.items()]
    text = "\n".join(
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
            "Exit codes: 0 ok, 1 a check said no, 2 usage or recipe, 3 machine, 4 data, 5 training,",
            "70 a defect of ours, 129 the terminal closed (SIGHUP), 130 interrupted (Ctrl-C),",
            "138 the time is nearly over (SIGUSR1), 141 the reader of the output went away (| head),",
            "143 terminated (SIGTERM).",
            "",
            "Begin with: trainwright run recipes/quickstart.yaml",
        )
    )
    return tables.paragraphs(text, width=width)


def parser_of(name: str) -> tuple[CommandModule, CommandParser]:
    """Import a command's module and build its parser."""
    command = COMMANDS[name]
    module = cast("CommandModule", importlib.import_module(command.module))
    parser = CommandParser(
        prog=f"trainwright {name}",
        description=tables.paragraphs(module.__doc__ or "", width=streams.width_of(sys.stdout)),
    )
    module.configure(parser)
    if not parser.subcommands:
        add_common(parser)
    parser.having = _having
    return module, parser


def _having(flag: str) -> list[str]:
    """Returns the first two commands that have an option: ``trainwright recommend`` of ``--deadline``."""
    parsers = (parser_of(name)[1] for name in COMMANDS)
    return [parser.prog for parser in parsers if parser.has(flag)][:2]


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` name.

    Raises:
        TrainwrightError: of the command, or a RecipeError for arguments that are wrong.
    """
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(help_text(width=streams.width_of(sys.stdout)))
        return 0
    if name == "--version":
        print(f"trainwright {__version__}")
        return 0
    if name not in COMMANDS:
        what = "an option before the command" if name.startswith("-") else "unknown command"
        fix = did_you_mean(name, COMMANDS) or "see: trainwright --help"
        raise RecipeError(what, seen=repr(name), expected="trainwright COMMAND ...", fix=fix)
    module, parser = parser_of(name)
    try:
        args = parser.parse_args(arguments[1:])
    except SystemExit:  # --help has printed
        return 0
    if parser.subcommands and args.subcommand is None:
        parser.print_help()
        return 0
    args.command = parser.prog_of(args).removeprefix("trainwright ")
    try:
        Path.cwd()
    except FileNotFoundError:
        raise MachineError("the working directory is gone", fix="change to one that exists") from None
    return module.run(args)


class Stopped(KeyboardInterrupt):
    """SIGTERM, SIGHUP and SIGUSR1 end work as Ctrl-C does: parts are kept, processes end, a line is printed.

    Exit codes differ.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no exception escapes."""
    wait_briefly(os.environ)
    spare_autoload(os.environ)
    if join_freed_blocks(os.environ, glibc_version()) and argv is None and sys.argv[1:2] and sys.argv[1] in TRAINING:
        begin_again()
    if argv is None:
        streams.prepare()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
                signal.signal(number, _stop)
        if sys.argv[1:2] and sys.argv[1] in ANSWERS:
            start_no_threads(os.environ)
            gc.disable()
            atexit.register(gc.freeze)  # nor does Python look for garbage when it ends
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or bool(os.environ.get("TRAINWRIGHT_DEBUG"))
    try:
        code = dispatch(arguments)
        sys.stdout.flush()
    except streams.ReaderGone:
        return BROKEN_PIPE_EXIT_CODE
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        return _failed(STOPS[number], arguments, debug=debug)
    except TrainwrightError as error:
        return _failed(error, arguments, debug=debug)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the outermost frame: a line in place of a traceback
        return _failed(_unforeseen(error), arguments, debug=debug)
    return code


def _unforeseen(error: BaseException) -> TrainwrightError:
    """Returns what no layer below has put into words: a refusal of the machine by its number, else our mistake."""
    of_torch = _TORCH_MEMORY.search(str(error)) if isinstance(error, RuntimeError) else None
    if of_torch or isinstance(error, MemoryError):
        seen, fix = of_torch and of_torch.group().lower(), "end other programs, or ask for less"
        return MachineError("the memory is full", seen=seen, fix=fix)
    if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS:
        return MachineError("the system refuses", where=error.filename, seen=error.strerror)
    return Defect(
        "a defect in trainwright: {kind}: {message}",
        fix="run it again with --debug for the traceback, and please report it",
        kind=type(error).__name__,
        message=error,
    )


def _failed(error: TrainwrightError, arguments: Sequence[str], *, debug: bool) -> int:
    """Print an error and return its exit code."""
    output = error_output(arguments)
    if isinstance(error, streams.OutputLost):
        output = replace(output, json=False)  # what stdout cannot take goes to stderr
    try:
        output.error(error, traceback=debug)
        sys.stdout.flush()
    except (streams.OutputLost, streams.ReaderGone):
        replace(output, json=False).error(error, traceback=False)
    return error.exit_code
