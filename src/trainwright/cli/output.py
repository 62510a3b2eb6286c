"""The output of commands: text for people, or with ``--json`` one document for programs.

Results go to stdout; notes, progress and errors to stderr. With ``--json`` stdout holds exactly one JSON document,
``{"schema": "trainwright.<command>/<version>", ...}``, and after a failure that document is an error::

    {"schema": "trainwright.error/1", "exit_code": 2, "errors": [
        {"code": "recipe_error", "what": ..., "where": ..., "seen": ..., "expected": ..., "fix": ...}]}

A message that holds values has its template and those values beside it: ``"template": "{count} shards are damaged",
"fields": {"count": 2}``.

Numbers that JSON cannot say (NaN, infinity) are null.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import traceback as tracebacks
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from trainwright.cli import streams, tables
from trainwright.cli.options import in_options
from trainwright.core.errors import RecipeErrors, TrainwrightError
from trainwright.render.document import document
from trainwright.render.page import colours

if TYPE_CHECKING:
    import argparse

    from trainwright.render.progress import Progress

WORDS = 5
"""Of a quantity at most: ``52.2 GiB of 78.8 GiB``."""
_RED, _BOLD, _DIM, _RESET = "\033[31m", "\033[1m", "\033[2m", "\033[0m"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """The streams and the form in which one command prints.

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
        """Returns the output that a command's arguments ask for."""
        return cls(command=args.command, json=args.json, quiet=args.quiet, verbose=args.verbose, no_color=args.no_color)

    def result(self, payload: Mapping[str, Any], text: Callable[[], None], *, version: int = 1) -> None:
        """Print the command's one result: ``payload`` as JSON, or whatever ``text`` prints."""
        if self.json:
            self._document(self.command.replace(" ", "."), payload, version=version)
        else:
            text()

    def _document(self, name: str, payload: Mapping[str, Any], *, version: int) -> None:
        """JSON says in ASCII what the encoding of stdout lacks."""
        text = document(name, payload, version=version)
        try:
            text.encode(self.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            text = document(name, payload, version=version, only_ascii=True)
        self.verbatim(text)

    def line(self, text: str = "") -> None:
        """Writes a line on stdout; a terminal that is narrower gets it in several."""
        self._print(text, self.stdout)

    def verbatim(self, text: str) -> None:
        """Writes text on stdout that is never wrapped: for programs, and to be copied."""
        print(text, file=self.stdout)

    def heading(self, text: str) -> None:
        """Writes a line that begins a part."""
        self._print(text, self.stdout, style=_BOLD)

    def note(self, text: str) -> None:
        """Writes a line on stderr, unless quiet."""
        if not self.quiet:
            self._print(text, self.stderr, style=_DIM)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
        """Rows under column names; columns of numbers stand right. A terminal gets rules and colours.

        Where a terminal is too narrow for the longest words, each row is a block with a line for each column.
        """
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        right = [bool(cells) and all(_is_number(row[index]) for row in cells) for index in range(len(columns))]
        if any(" " in row[0] for row in cells if row):  # the first column names the rows: "4 devices" is a name
            right[0] = False
        width = streams.width_of(self.stdout)
        rules = 3 * len(columns) + 1  # spaces between columns and beside them
        room = None if width is None else width - rules
        if self.colored(self.stdout) and (room is None or sum(tables.longest_words(columns, cells)) <= room):
            self._rich_table(columns, cells, right, title, room)
            return
        lines = list(tables.aligned(columns, cells, right))
        if width is not None and max(map(len, lines)) > width:
            lines = tables.hanging(columns, cells, right, width) or list(tables.blocks(columns, cells, width=width))
        for line in [*([title] if title else []), *lines]:
            self.line(line)

    def _rich_table(
        self,
        columns: Sequence[str],
        cells: Sequence[Sequence[str]],
        right: Sequence[bool],
        title: str | None,
        room: int | None,
    ) -> None:
        # Only a terminal pays for importing rich.
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        # Rich shares a narrow terminal out by ratios, which break words.
        widths = [None] * len(columns) if room is None else tables.shared(columns, cells, room)
        for name, to_right, wide in zip(columns, right, widths, strict=True):
            table.add_column(Text(name), justify="right" if to_right else "left", width=wide)
        for row in cells:
            table.add_row(*map(Text, row))
        Console(file=self.stdout, highlight=False).print(table)

    def progress(self) -> Progress:
        """Returns a listener for events that shows on stderr how far a job is; a context manager."""
        from trainwright.render.progress import Progress

        return Progress(self)

    def colored(self, stream: TextIO) -> bool:
        """Returns whether ``stream`` is a terminal that wants colours."""
        return not self.no_color and colours(stream, os.environ)

    def error(self, error: TrainwrightError, *, traceback: bool) -> None:
        """Print what went wrong: a line for each problem on stderr, or with ``--json`` a document on stdout."""
        if traceback:
            tracebacks.print_exc(file=self.stderr)
        problems = [in_options(each) for each in (error.problems if isinstance(error, RecipeErrors) else (error,))]
        if self.json:
            errors = [_problem_document(problem) for problem in problems]
            self._document("error", {"exit_code": error.exit_code, "errors": errors}, version=1)
            return
        label = "error:"
        for problem in problems:
            text = tables.fitting(f"{label} {problem}", width=streams.width_of(self.stderr))
            print(self._styled(label, _RED + _BOLD, self.stderr) + text.removeprefix(label), file=self.stderr)

    def _print(self, text: str, stream: TextIO, *, style: str = "") -> None:
        """Prints a line, in several where ``stream`` is a terminal that is narrower."""
        print(self._styled(tables.fitting(text, width=streams.width_of(stream)), style, stream), file=stream)

    def _styled(self, text: str, style: str, stream: TextIO) -> str:
        return f"{style}{text}{_RESET}" if style and self.colored(stream) else text


def error_output(arguments: Sequence[str]) -> Output:
    """Returns the output for errors, which may come before the arguments are understood."""
    return Output(command="error", json="--json" in arguments, no_color="--no-color" in arguments)


def _problem_document(problem: TrainwrightError) -> dict[str, Any]:
    """``template`` and ``fields`` are there where the message holds values."""
    parts = {"template": problem.template, "fields": problem.fields} if problem.fields else {}
    return {
        "code": _code(problem),
        "what": problem.what,
        "where": problem.where,
        "seen": problem.seen,
        "expected": problem.expected,
        "fix": problem.fix,
    } | parts


def _code(error: TrainwrightError) -> str:
    """``RecipeError`` is ``recipe_error``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def _is_number(text: str) -> bool:
    """Returns whether a cell is a quantity; ``8xh100-sxm`` is a name, ``--on`` an option, many words a sentence."""
    if len(text.split()) > WORDS or text.startswith("--"):
        return False
    return not text or text[:1] in "-+$~<>≈" or (text[:1].isdigit() and not re.match(r"\d+x\w", text))
