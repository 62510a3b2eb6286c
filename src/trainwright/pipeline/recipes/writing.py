"""Writes a new recipe: its text with a word beside each key, read by the loader of recipes before it is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.artifact.store import write_atomically
from trainwright.core.config.load import load
from trainwright.core.errors import MachineError, RecipeError, RecipeErrors, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.pipeline.base.keys import keys_of_base
from trainwright.pipeline.preflight import problems
from trainwright.pipeline.recipes.composing import Composed
from trainwright.pipeline.steps import steps
from trainwright.render.recipe import yaml_lines
from trainwright.spec.recipe import Recipe

COMMENT_COLUMN = 40
"""Where comments begin at the latest, unless a line is longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A recipe that was checked.

    Attributes:
        recipe: as the loader reads it.
        lacking: what this machine lacks for running it: weights that are not here yet, a package.
    """

    recipe: Recipe
    lacking: tuple[TrainwrightError, ...]


def text_of(composed: Composed, head: tuple[str, ...]) -> str:
    """Returns the text of a recipe: lines of its head as comments, then its keys, each with what is said of it."""
    lines = list(yaml_lines(composed.tree))
    column = min(COMMENT_COLUMN, max(len(line) for line, _ in lines))
    body = (_commented(line, composed.comments.get(key), column) for line, key in lines)
    return "\n".join((*(f"# {line}" for line in head), *body, ""))


def _commented(line: str, comment: str | None, column: int) -> str:
    return line if comment is None else f"{line:<{column}}  # {comment}"


def checked(text: str, path: Path) -> Written:
    """Returns what the loader makes of a recipe's text.

    Args:
        text: of the recipe.
        path: where it is to be, for errors.

    Raises:
        RecipeErrors: what is wrong with it on any machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        try:
            recipe = load(Recipe, files=[draft], environ={}, beneath=keys_of_base).value
        except RecipeErrors as error:
            raise RecipeErrors(_of(problem, f"{folder}/") for problem in error.problems) from error
    line = steps(recipe)
    known = problems(line, line, {}, load_torch=False)
    refusals = [problem for problem in known if isinstance(problem, RecipeError)]
    if refusals:
        raise RecipeErrors(refusals)
    return Written(recipe=recipe, lacking=tuple(known))


def _of(problem: TrainwrightError, folder: str) -> TrainwrightError:
    """Returns a problem of a draft as one of the file that it is to be."""
    return problem.at(None if problem.where is None else problem.where.replace(folder, ""))


def refuse_overwriting(path: Path, *, force: bool) -> None:
    """Raises a RecipeError where something is at a path and may not be written over."""
    if path.is_dir():
        raise RecipeError("this is a folder", field="out_file", seen=str(path), expected="a file to write")
    if not force and (path.exists() or path.is_symlink()):
        fix = "write it elsewhere with `out_file`, or over it with `force`"
        raise RecipeError("this file is there already", field="out_file", seen=str(path), fix=fix)


def write(text: str, path: Path, *, force: bool) -> None:
    """Writes a recipe whole or not at all; over a file that is there only by ``force``.

    Raises:
        RecipeError: there is a file already.
        MachineError: the system does not let it be written.
    """
    refuse_overwriting(path, force=force)
    try:
        if force:
            write_atomically(path, text.encode())
        else:
            write_new(path, text)
    except FileExistsError:
        refuse_overwriting(path, force=False)
    except OSError as error:
        raise MachineError("cannot write the recipe", where=path, seen=error.strerror or str(error)) from error


def write_new(path: Path, text: str) -> None:
    """Writes a file that is not there yet, whole or not at all; raises FileExistsError, or another OSError."""
    with path.open("x", encoding="utf-8"):
        pass  # from now on the name is ours
    try:
        write_atomically(path, text.encode())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def head_of(says: str, command: str, following: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the lines that a new recipe begins with.

    Args:
        says: what it does.
        command: that wrote it.
        following: commands to type next, and what each does.
    """
    width = max(map(len, following))
    return (
        f"{says[:1].upper()}{says[1:]}. Written by: {command}",
        *(f"  {name:<{width}}   # {what}" for name, what in following.items()),
    )
