"""Write a recipe from three answers: what is trained (KIND), of which model, on which data.

What the command line does not say is asked in a terminal; nothing that has a default is asked where KIND and --data are
given. The file has a word beside each key, and is read by the loader of recipes before it is kept.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainwright.cli.options import in_options
from trainwright.cli.output import Output
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.paths import local_path
from trainwright.core.spelling import unknown
from trainwright.pipeline.recipes.kinds import KINDS, SMALL, Kind

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser
    from trainwright.pipeline.recipes.corpora import ChosenData
    from trainwright.pipeline.recipes.models import ChosenModel
    from trainwright.pipeline.recipes.writing import Written

T = TypeVar("T")
OPTIONS = {"model": "--model", "data": "--data", "text": "--text", "label": "--label"}


def configure(parser: CommandParser) -> None:
    """Add the answers."""
    parser.epilog = f"kinds:\n{_kinds()}"
    parser.add_argument("kind", nargs="?", choices=tuple(KINDS), metavar="KIND", help="what is trained; see below")
    parser.add_argument("--model", metavar="MODEL", help="a folder with a model, a name (llama3-8b), or small")
    parser.add_argument("--data", metavar="DATA", help="a file, a folder, or a source such as python-stdlib")
    parser.add_argument("--text", metavar="COLUMN", help="column of a table that holds the text (default: by its name)")
    parser.add_argument("--label", metavar="COLUMN", help="column that holds the class (default: by its name)")
    parser.add_argument("-o", "--out-file", metavar="FILE", help="the recipe to write (default: by its kind)")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    """Ask, write, and say what to type next."""
    from trainwright.pipeline.recipes.composing import composed
    from trainwright.pipeline.recipes.writing import checked, head_of, text_of, write

    output, answers = Output.of(args), Answers(args)
    try:
        kind, path, model, data = _answered(answers, args)
    except KeyboardInterrupt:
        if len(answers.given) > 1:
            output.note(f"\nnothing is written yet; to go on: {answers.command()}")
        raise
    following = _following(path)
    recipe = composed(kind, model, data, name=_name(path))
    text = text_of(recipe, head_of(kind.says, answers.command(), following))
    written = checked(text, path)
    write(text, path, force=args.force)
    payload = {
        "file": path,
        "kind": answers.given["kind"],
        "recipe": recipe.tree,
        "lacking": [str(problem) for problem in written.lacking],
        "next": list(following),
    }
    output.result(payload, lambda: _show(output, path, model, written, following))
    return 0


class Answers:
    """What is answered: by the command line, else in the terminal, else not at all.

    Args:
        args: of the command.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.given: dict[str, str] = {}
        """The answers so far that were understood."""
        self.asks = sys.stdin is not None and sys.stdin.isatty() and not args.json

    def command(self) -> str:
        """Returns the command line that gives these answers."""
        words = ["trainwright", "init"]
        words += [self.given["kind"]] if "kind" in self.given else []
        for name, option in OPTIONS.items():
            words += [option, self.given[name]] if name in self.given else []
        if self.args.out_file is not None:
            words += ["-o", self.args.out_file]
        return shlex.join(words)

    def of(self, name: str, question: str, read: Callable[[str], T], *, default: str | None = None) -> T:
        """Returns what is made of an answer; a bad one is said and asked again, where there is a terminal.

        Args:
            name: of the argument.
            question: what is asked.
            read: makes something of an answer; raises a TrainwrightError where it is none.
            default: the answer of who presses Enter; also where nothing can be asked.

        Raises:
            TrainwrightError: as ``read``.
        """
        answer: str | None = vars(self.args)[name]
        asks = answer is None and self.asks
        if asks:
            print(question, file=sys.stderr)
        while True:
            text = self._line(default) if asks else default or "" if answer is None else answer
            try:
                result = read(text)
            except TrainwrightError as error:
                if not asks:
                    raise
                print(in_options(error.at(None).about("")), file=sys.stderr)  # what it is about was just asked
                continue
            self.given[name] = text
            return result

    def _line(self, default: str | None) -> str:
        """Returns a line from the terminal; the end of its input is an interruption."""
        print(f"[{default}] > " if default else "> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise KeyboardInterrupt
        return line.strip() or default or ""


def _answered(answers: Answers, args: argparse.Namespace) -> tuple[Kind, Path, ChosenModel, ChosenData]:
    """Returns the kind, the file to write, the model and the data."""
    from trainwright.pipeline.recipes.models import chosen_model, expected
    from trainwright.pipeline.recipes.writing import refuse_overwriting

    of_kind = args.kind is None
    kind = answers.of("kind", f"What do you want to do?\n{_kinds()}", _kind)
    path = local_path(args.out_file or kind.file)
    refuse_overwriting(path, force=args.force)
    default = None if kind.needs_base else SMALL
    if args.model is None and default is not None and not of_kind:
        model = chosen_model(default, kind)
    else:
        question = f"Which model? {expected(kind)}"
        model = answers.of("model", question, lambda text: chosen_model(text, kind), default=default)
    return kind, path, model, _data(answers, kind)


def _kinds() -> str:
    """Returns a line for each kind."""
    longest = max(map(len, KINDS))
    return "\n".join(f"  {name:<{longest}}  {kind.says}" for name, kind in KINDS.items())


def _kind(name: str) -> Kind:
    if name not in KINDS:
        if not name:
            raise RecipeError("no kind is named", where="KIND", expected=f"one of {', '.join(KINDS)}")
        raise RecipeError("unknown kind", where="KIND", **unknown(name, KINDS))
    return KINDS[name]


def _data(answers: Answers, kind: Kind) -> ChosenData:
    """Returns the data, of a table with its columns; a column that no name tells is asked, too."""
    from trainwright.pipeline.recipes.corpora import ColumnNeeded, chosen_data, expected
    from trainwright.spec.sections.task import TASKS

    columns: dict[str, str | None] = {role: vars(answers.args)[role] for role in ("text", "label")}
    answers.given |= {role: name for role, name in columns.items() if name is not None}
    needed: list[ColumnNeeded] = []

    def read(text: str) -> ChosenData | None:
        try:
            return chosen_data(text, kind, columns)
        except ColumnNeeded as error:
            if not answers.asks:
                raise
            needed.append(error)
            return None

    question = f"Which data? {expected(TASKS[kind.task['name']].needs)}"
    data = answers.of("data", question, read)
    while data is None:
        role = needed[-1].role
        there = ", ".join(needed[-1].columns)

        def choose(name: str, role: str = role) -> ChosenData | None:
            columns[role] = name
            return read(answers.given["data"])

        data = answers.of(role, f"Which column holds the {role}? {there}", choose)
    return data


def _name(path: Path) -> str:
    """Returns the recipe's name: its file's, as a name may be."""
    plain = "".join(each if each.isalnum() or each in "-_." else "-" for each in path.stem)
    return plain if any(each.isalnum() for each in plain) else "recipe"


def _following(path: Path) -> dict[str, str]:
    """Returns the commands to type next, and what each does."""
    file = shlex.quote(str(path))
    return {
        f"trainwright plan {file}": "does it fit, and how long does it take",
        f"trainwright run {file}": "all of it; Ctrl-C any time, the same command goes on",
    }


def _show(output: Output, path: Path, model: ChosenModel, written: Written, following: dict[str, str]) -> None:
    output.line(f"wrote {path}")
    if model.missing:
        output.note(
            f"the weights of {model.name} are not here: put its files (config.json, *.safetensors, tokenizer.json, "
            f"tokenizer_config.json) into the folder {model.folder} before you run it; plans need none"
        )
    else:
        for problem in written.lacking:
            output.note(f"before you run it: {problem}")
    width = max(map(len, following))
    for command, what in following.items():
        output.line(f"  {command:<{width}}   # {what}")
