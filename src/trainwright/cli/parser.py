"""argparse with this project's manners: errors are RecipeErrors, recipes and options may come in any order."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import ascii_twin, did_you_mean

MEANT = {
    "--on": ("--devices", "--have"),
    "--format": ("--json",),
    "--gpu": ("--on", "--devices"),
    "--gpus": ("--on", "--devices"),
}
"""What is meant by options that other commands or other tools have, where this command has one of these."""
NUMBERS: Mapping[object, str] = {int: "a whole number", float: "a number"}
"""What options of a type take."""


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, or of one subcommand."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)
        # A number below zero, with whatever unit, is a value that its option refuses, not an unknown option.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.subcommands: dict[str, CommandParser] = {}
        self.having: Callable[[str], list[str]] = lambda flag: []
        """Returns the other commands that have an option, for who writes it after this one."""
        self._intermixing = False

    def add_subcommand(self, name: str, help: str) -> CommandParser:  # noqa: A002  # argparse's own word for it
        """Returns a subcommand; its name is in ``args.subcommand``. Common arguments are added to it."""
        if self._subparsers is None:
            self._choice = self.add_subparsers(dest="subcommand", metavar="SUBCOMMAND")
        parser = self._choice.add_parser(name, help=help, description=f"{help[:1].upper()}{help[1:]}.")
        assert isinstance(parser, CommandParser)
        self.subcommands[name] = parser
        add_common(parser)
        return parser

    def prog_of(self, args: argparse.Namespace) -> str:
        """Returns the words that lead to what ``args`` call: ``trainwright config show``."""
        return f"{self.prog} {args.subcommand}" if self.subcommands else self.prog

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does, with ``recipe.yaml --json key=value`` in any order."""
        if self.subcommands or self._intermixing:
            return super().parse_known_args(args, namespace)
        dashed = [word for word in args or () if not word.startswith("-") and ascii_twin(word).startswith("-")]
        if dashed:
            self._refuse(dashed)
        self._intermixing = True  # parse_known_intermixed_args calls this method again
        try:
            parsed, unknown = super().parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            self._refuse(unknown)
        return parsed, unknown

    def has(self, flag: str) -> bool:
        """Returns whether it has an option of that spelling."""
        return flag in self._option_string_actions

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        options = [option for action in self._actions for option in action.option_strings]
        flag = unknown[0].partition("=")[0]
        others = self.having(flag)
        elsewhere = f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'} it" if others else None
        meant = [option for option in MEANT.get(flag, ()) if option in options]
        here = f"did you mean {' or '.join(map(repr, meant))}?" if meant else None
        fix = here or elsewhere or did_you_mean(flag, options) or f"see: {self.prog} --help"
        if "--model" in options and not ascii_twin(flag).startswith("-"):
            fix = f"a model or a recipe is given so: {self.prog} --model {shlex.quote(unknown[0])}"
        raise RecipeError("unknown argument", where=self.prog, seen=repr(" ".join(unknown)), fix=fix)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does; of a value that is none of those to choose from the nearest is named."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(str(value), map(str, action.choices or ()))
            raise RecipeError(str(error), where=self.prog, fix=near or f"see: {self.prog} --help") from error

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse does; says what a number of an option must be."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if (expected := NUMBERS.get(action.type)) is None:
                raise
            option = "/".join(action.option_strings) or str(action.dest)
            raise RecipeError("no number", where=option, seen=repr(arg_string), expected=expected) from error

    def error(self, message: str) -> NoReturn:
        """Raise what argparse finds wrong.

        Raises:
            RecipeError: always.
        """
        raise RecipeError(message, where=self.prog, fix=f"see: {self.prog} --help")


def add_common(parser: CommandParser) -> None:
    """Adds the arguments that every command has."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print one JSON document on stdout, errors too")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes")
    group.add_argument("-v", "--verbose", action="store_true", help="every metric as a line")
    group.add_argument("--no-color", action="store_true", help="no colours (so does NO_COLOR)")
    group.add_argument("--debug", action="store_true", help="the traceback of an error (so does TRAINWRIGHT_DEBUG)")
