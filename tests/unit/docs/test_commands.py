"""Every command that the documentation shows exists, with its options: held against the real command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.cli import main as cli
from trainwright.cli.shell.surface import Surface, surfaces

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "lab" not in page.parts]  # the log is dated: it keeps the commands of its day

FENCE = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(trainwright(?: [^`]*)?)`")
OPTION = re.compile(r"`(--[a-z][a-z-]+)[^`]*`")
CONSOLE = re.compile(r"^```console\n\$ trainwright ([^|\n]*?)(?: \| head -(\d+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
END_OF_COMMAND = {"|", "&&", "||", ";", ">", ">>", "<", "&", "2>"}
EVERYWHERE = {"--help", "--version"}


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], Surface]:
    return {surface.words: surface for surface in surfaces()}


def command_lines(page: str) -> Iterator[list[str]]:
    """The words of each call of trainwright, in fenced blocks and within sentences."""
    fenced = (line for block in FENCE.findall(page) for line in block.replace("\\\n", " ").splitlines())
    for line in (*fenced, *INLINE.findall(page)):
        words = shlex.split(line.replace("\\|", "|"), comments=True)
        while "trainwright" in words:
            words = words[words.index("trainwright") + 1 :]
            end = next((place for place, word in enumerate(words) if word in END_OF_COMMAND), len(words))
            if words[:end]:
                yield words[:end]


def problem(words: list[str], commands: dict[tuple[str, ...], Surface]) -> str | None:
    """Returns why nobody can type these words behind ``trainwright``; None where they can."""
    if words[0] in EVERYWHERE:
        return None
    if (words[0],) not in commands:
        return f"no command {words[0]!r}"
    path, rest = (words[0],), words[1:]
    while commands[path].subcommands and rest and not rest[0].startswith("-"):
        if rest[0] not in commands[path].subcommands:
            return f"{' '.join(path)} has no subcommand {rest[0]!r}, only {', '.join(commands[path].subcommands)}"
        path, rest = (*path, rest[0]), rest[1:]
    flags = {flag for option in commands[path].options for flag in option.flags} | EVERYWHERE
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    unknown = [option for option in options if option not in flags]
    return f"{' '.join(path)} has no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_can_be_typed(page, commands):
    lines = list(command_lines(page.read_text(encoding="utf-8")))
    problems = [f"trainwright {' '.join(words)}: {why}" for words in lines if (why := problem(words, commands))]
    assert problems == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "decisions"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_option_in_a_sentence_exists(page, commands):
    flags = {flag for surface in commands.values() for option in surface.options for flag in option.flags}
    named = set(OPTION.findall(page.read_text(encoding="utf-8")))
    assert named - flags - EVERYWHERE == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("`trainwright config RECIPE`", "config has no subcommand 'RECIPE'"),
        ("`trainwright pland RECIPE`", "no command 'pland'"),
        ("```bash\nmake x && trainwright plan a.yaml \\\n  --onn 8xh100 | head\n```\n", "plan has no option --onn"),
        ("```bash\ntrainwright serve --bundle DIR  # --nothing\n```\n", None),
        ("`trainwright config show RECIPE --origin`", None),
    ],
)
def test_what_cannot_be_typed_is_named(text, why, commands):
    (words,) = command_lines(text)
    reason = problem(words, commands)
    assert (reason or "").startswith(why) if why else reason is None


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_what_a_console_shows_is_what_is_printed(page, capsys):
    """Prices, networks and rates change with their tables: then the example is to be printed anew."""
    shown = CONSOLE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert shown
    for words, lines, text in shown:
        assert cli.main(shlex.split(words)) == 0
        printed = capsys.readouterr().out.splitlines()
        assert text.splitlines() == printed[: int(lines) if lines else None]


def test_there_is_much_to_check():
    assert sum(len(list(command_lines(page.read_text(encoding="utf-8")))) for page in PAGES) > 100
