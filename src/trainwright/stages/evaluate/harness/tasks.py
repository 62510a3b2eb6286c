"""The tasks of lm-evaluation-harness: their names are known before anything runs, and without torch."""

from __future__ import annotations

import logging
from functools import cache

from lm_eval.tasks import TaskManager

from trainwright.core.errors import RecipeError
from trainwright.core.paths import local_path
from trainwright.core.spelling import did_you_mean
from trainwright.spec.sections.evaluate import BenchmarksSection

WHERE = "evaluate.benchmarks.tasks"
logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it says which defaults it takes, for each task


def tasks_of(section: BenchmarksSection) -> TaskManager:
    """Returns the harness's tasks, with those in a folder of one's own.

    Raises:
        RecipeError: there is no task of a name.
    """
    manager = _tasks(None if section.include is None else str(local_path(section.include)))
    known = set(manager.all_tasks)
    for name in section.tasks:
        if name not in known:
            raise RecipeError(
                "unknown benchmark",
                where=WHERE,
                seen=name,
                expected=f"one of {len(known):,} names that `lm-eval ls tasks` lists, or of your own in `include`",
                fix=did_you_mean(name, known),
            )
    return manager


@cache
def _tasks(folder: str | None) -> TaskManager:
    """Reading thousands of files takes seconds."""
    return TaskManager(include_path=folder)
