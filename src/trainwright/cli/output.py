"""What commands print: text for people, or with ``--json`` one document for programs.

Results go to stdout; notes, progress and errors to stderr. With ``--json`` stdout holds exactly one JSON document,
``{"schema": "trainwright.<command>/<version>", ...}``, and after a failure that document is an error::

    {"schema": "trainwright.error/1", "exit_code": 2, "errors": [
        {"code": "recipe_error", "what": ..., "where": ..., "seen": ..., "expected": ..., "fix": ...}]}

Numbers that JSON cannot say (NaN, infinity) are null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import sys
import traceback as tracebacks
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainwright.core.errors import RecipeErrors, TrainwrightError

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.progress import Progress

_RED, _BOLD, _DIM, _RESET = "\033[31m", "\033[1m", "\033[2m", "\033[0m"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where and how one command prints.

    Attributes:
        command: the command's words, ``plan`` or ``config show``; names the JSON schema.
        json: results and errors are JSON.
        quiet: no notes and no progress.
        verbose: every metric is a line.
        no_color: asked for on the command line.
    """

    command: str
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    stdout: TextIO = dataclasses.field(default_factory=lambda: sys.stdout)
    stderr: TextIO = dataclasses.field(default_factory=lambda: sys.stderr)

    @classmethod
    def of(cls, args: argparse.Namespace) -> Output:
        """The output that a command's arguments ask for."""
        return cls(command=args.command, json=args.json, quiet=args.quiet, verbose=args.verbose, no_color=args.no_color)

    def result(self, payload: Mapping[str, Any], text: Callable[[], None], *, version: int = 1) -> None:
        """Print the command's one result: ``payload`` as JSON, or whatever ``text`` prints."""
        if self.json:
            self.line(document(self.command.replace(" ", "."), payload, version=version))
        else:
            text()

    def line(self, text: str = "") -> None:
        """A line on stdout."""
        print(text, file=self.stdout)

    def heading(self, text: str) -> None:
        """A line that begins a part."""
        self.line(self._styled(text, _BOLD, self.stdout))

    def note(self, text: str) -> None:
        """A line on stderr, unless quiet."""
        if not self.quiet:
            print(self._styled(text, _DIM, self.stderr), file=self.stderr)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
        """Rows under column names; columns of numbers stand right. A terminal gets rules and colours."""
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        right = [bool(cells) and all(_is_number(row[index]) for row in cells) for index in range(len(columns))]
        if self.colored(self.stdout):
            self._rich_table(columns, cells, right, title)
            return
        if title:
            self.line(title)
        widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            padded = [
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(row, widths, right, strict=True)
            ]
            self.line("  ".join(padded).rstrip())

    def _rich_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], title: str | None
    ) -> None:
        # Only a terminal pays for importing rich.
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name, to_right in zip(columns, right, strict=True):
            table.add_column(Text(name), justify="right" if to_right else "left")
        for row in cells:
            table.add_row(*map(Text, row))
        Console(file=self.stdout, highlight=False).print(table)

    def progress(self) -> Progress:
        """A listener for events that shows on stderr how far a job is; a context manager."""
        from trainwright.cli.progress import Progress

        return Progress(self)

    def colored(self, stream: TextIO) -> bool:
        """Whether ``stream`` is a terminal that wants colours."""
        wanted = not self.no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return wanted and stream.isatty()

    def error(
        self, error: TrainwrightError, *, traceback: bool, code: str | None = None, exit_code: int | None = None
    ) -> None:
        """Print what went wrong: a line for each problem on stderr, or with ``--json`` a document on stdout."""
        if traceback:
            tracebacks.print_exc(file=self.stderr)
        problems = error.problems if isinstance(error, RecipeErrors) else (error,)
        if self.json:
            errors = [
                {
                    "code": code or _code(problem), "what": problem.what, "where": problem.where,
                    "seen": problem.seen, "expected": problem.expected, "fix": problem.fix,
                }
                for problem in problems
            ]  # fmt: skip
            payload = {"exit_code": error.exit_code if exit_code is None else exit_code, "errors": errors}
            self.line(document("error", payload, version=1))
            return
        label = self._styled("error:", _RED + _BOLD, self.stderr)
        for problem in problems:
            print(label, problem, file=self.stderr)

    def _styled(self, text: str, style: str, stream: TextIO) -> str:
        return f"{style}{text}{_RESET}" if self.colored(stream) else text


def error_output(arguments: Sequence[str]) -> Output:
    """The output for errors, which may come before the arguments are understood."""
    return Output(command="error", json="--json" in arguments, no_color="--no-color" in arguments)


def document(name: str, payload: Mapping[str, Any], *, version: int) -> str:
    """The JSON document of a command."""
    plain = {"schema": f"trainwright.{name}/{version}", **_plain(payload)}
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON values of dataclasses, pydantic models, paths, tuples and sets."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def _code(error: TrainwrightError) -> str:
    """``RecipeError`` is ``recipe_error``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def _is_number(text: str) -> bool:
    """Whether a cell is a quantity; ``8xh100-sxm`` is a name."""
    return not text or text[:1] in "-+$~<>≈" or (text[:1].isdigit() and not re.match(r"\d+x\w", text))
