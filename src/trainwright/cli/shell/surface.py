"""Everything a user can type, as data: for completion scripts and for the test that freezes it.

``python -m trainwright.cli.shell.surface > tests/golden/cli_surface.txt`` writes the frozen form; a change in that file
is a change for users and belongs in the changelog.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from trainwright.cli.main import COMMANDS, parser_of
from trainwright.cli.parser import CommandParser
from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """A flag with its spellings; ``metavar`` is None where it takes no value."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None
    choices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """The arguments that may follow ``trainwright <words>``."""

    words: tuple[str, ...]
    help: str
    options: tuple[Flag, ...]
    positionals: tuple[Flag, ...]
    subcommands: tuple[str, ...]


def surfaces() -> Iterator[Surface]:
    """Yields each command and subcommand, in the order of ``--help``."""
    for name, command in COMMANDS.items():
        yield from _surfaces((name,), command.help, parser_of(name)[1])


def text() -> str:
    """Returns the frozen form: one line for each command, positional and option."""
    lines = []
    for surface in surfaces():
        lines.append(f"{' '.join(surface.words)}: {surface.help}")
        for option in (*surface.positionals, *surface.options):
            value = f" {option.metavar}" if option.metavar and option.flags else ""
            choices = f" {{{','.join(option.choices)}}}" if option.choices else ""
            name = ", ".join(option.flags) or option.metavar
            lines.append(f"    {name}{value}{choices}: {option.help}")
    return "\n".join(lines) + "\n"


def _surfaces(words: tuple[str, ...], help_text: str, parser: CommandParser) -> Iterator[Surface]:
    actions = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001  # argparse has no public list
    described = [_option(action) for action in actions]
    yield Surface(
        words=words,
        help=help_text,
        options=tuple(option for option in described if option.flags),
        positionals=tuple(option for option in described if not option.flags),
        subcommands=tuple(parser.subcommands),
    )
    for name, inner in parser.subcommands.items():
        yield from _surfaces((*words, name), inner.description or "", inner)


def _option(action: argparse.Action) -> Flag:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return Flag(
        flags=tuple(action.option_strings),
        help=action.help or "",
        metavar=None if action.nargs == 0 else metavar,
        choices=tuple(str(choice) for choice in action.choices or ()),
    )


if __name__ == "__main__":
    print(text(), end="")
