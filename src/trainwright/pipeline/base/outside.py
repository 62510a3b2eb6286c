"""What a stage's result depends on outside the workspace, by content: a base, a teacher, questions, benchmarks."""

from __future__ import annotations

from importlib.metadata import version

from trainwright.artifact.hub.base import base_folder, is_on_hub, on_hub, shape_file
from trainwright.artifact.workspace import directory_digest
from trainwright.core.errors import DataError
from trainwright.core.fingerprint import file_digest
from trainwright.core.paths import local_path
from trainwright.core.registry import installed
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import DistillSection


def shape_of_teacher(recipe: Recipe) -> dict[str, str]:
    """Returns the digest of the file that says a teacher's shape, by which a plan counts it, where it is here."""
    if not isinstance(recipe.task, DistillSection):
        return {}
    path = shape_file(recipe.task.teacher)
    return {} if path is None else {"teacher": file_digest(path)}


def weights_outside(recipe: Recipe) -> dict[str, str]:
    """Returns what tells the weights that a training begins with, and those of its teacher, from all others.

    Raises:
        TrainwrightError: they are not here, and cannot be downloaded.
    """
    found = {}
    if isinstance(recipe.task, DistillSection):
        found["teacher"] = base_identity(recipe.task.teacher)
    if recipe.model.init_from is not None:
        found["init_from"] = base_identity(recipe.model.init_from)
    return found


def base_identity(text: str) -> str:
    """Returns what tells a base from every other: of the hub its commit, of a folder the digest of its files.

    Raises:
        TrainwrightError: as ``base_folder``, and where a folder has no files.
    """
    folder = base_folder(text, weights=False)
    return f"{on_hub(text).repository}@{folder.name}" if is_on_hub(text) else directory_digest(folder)


def benchmarks_outside(recipe: Recipe) -> dict[str, str]:
    """Returns the harness that measures a recipe's benchmarks, and the digest of tasks of one's own."""
    section = recipe.evaluate.benchmarks
    if section is None:
        return {}
    harness = {"benchmarks": f"lm-eval {version('lm-eval')}" if installed("lm_eval") else "none"}
    return harness if section.include is None else harness | {"tasks": directory_digest(local_path(section.include))}


def questions_outside(recipe: Recipe) -> dict[str, str]:
    """Returns the digest of the questions that an evaluation asks. Raises a DataError where they cannot be read."""
    if recipe.evaluate.questions is None:
        return {}
    path = recipe.evaluate.questions.path
    try:
        return {"questions": file_digest(local_path(path))}
    except OSError as error:
        seen = f"{path}: {error.strerror}"
        raise DataError("cannot read the questions", where="evaluate.questions.path", seen=seen) from error
