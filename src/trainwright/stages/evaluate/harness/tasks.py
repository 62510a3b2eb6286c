"""The tasks of lm-evaluation-harness: their names are known before anything runs, and without torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import yaml
from lm_eval.tasks import TaskManager

from trainwright.artifact.workspace import directory_digest
from trainwright.core.errors import RecipeError, in_one_line
from trainwright.core.paths import local_path
from trainwright.core.spelling import did_you_mean
from trainwright.spec.sections.evaluate import BenchmarksSection

WHERE = "evaluate.benchmarks.tasks"
USUAL_ANSWER_TOKENS = 256
"""The harness's, of a task that does not say how long its answers are."""
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Keys that say it, the first one that is there (``lm_eval.models.utils.normalize_gen_kwargs``)."""
logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it says which defaults it takes, for each task


def problems(section: BenchmarksSection, *, context_tokens: int) -> Iterator[RecipeError]:
    """Yields why benchmarks cannot be measured that their files tell of, by a model of such a context.

    Raises:
        RecipeError: there is no task of a name.
    """
    manager = tasks_of(section)
    for name in section.tasks:
        for task, told in _tasks_in(manager, name, above=()):
            problem = _problem(told, context_tokens)
            if problem is not None:
                label = task if task == name else f"{task} of {name}"
                yield problem.at(WHERE, seen=f"{label}: {problem.seen}").with_fix("take it out")
                break


def _problem(told: Mapping[str, Any], context_tokens: int) -> RecipeError | None:
    """Returns what is wrong with a task, and what is seen of it; None where nothing is."""
    if told.get("unsafe_code"):
        return RecipeError("this benchmark runs code that the model writes", seen="unsafe_code")
    for key in ("doc_to_image", "doc_to_audio"):
        if told.get(key):
            return RecipeError("this benchmark is not of text alone", seen=key)
    settings = told.get("generation_kwargs")
    lengths = [settings.get(key) for key in _LENGTHS] if isinstance(settings, dict) else []
    longest = next((length for length in lengths if isinstance(length, int)), USUAL_ANSWER_TOKENS)
    if told.get("output_type") != "generate_until" or longest < context_tokens:
        return None
    return RecipeError(
        "a benchmark's answer leaves no room for its question",
        seen=f"answers of {longest} tokens",
        expected=f"fewer than model.context_tokens: {context_tokens}",
    )


def _tasks_in(manager: TaskManager, name: str, *, above: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the tasks that a name stands for, with what their files say; ``above``: the groups that it is of."""
    entry = manager.task_index.get(name)
    if entry is None or name in above:
        return  # the harness says so when it loads them
    told = entry.cfg or {}
    parts = sorted(entry.tags) if entry.kind.name == "TAG" else told.get("task")
    if not isinstance(parts, list):
        yield name, told
        return
    for part in parts:
        child = part.get("task") if isinstance(part, dict) else part
        if isinstance(child, str):
            yield from _tasks_in(manager, child, above=(*above, name))


def tasks_of(section: BenchmarksSection) -> TaskManager:
    """Returns the harness's tasks, with those in a folder of one's own.

    Raises:
        RecipeError: there is no task of a name.
    """
    if section.include is None:
        manager = _tasks(None, None)
    else:
        folder = local_path(section.include)
        manager = _tasks(str(folder), directory_digest(folder))
    known = set(manager.all_tasks)
    for name in section.tasks:
        if name not in known:
            _refuse_broken(section.include)
            raise RecipeError(
                "unknown benchmark",
                where=WHERE,
                seen=name,
                expected=f"one of {len(known):,} names that `lm-eval ls tasks` lists, or of your own in `include`",
                fix=did_you_mean(name, known),
            )
    return manager


def _refuse_broken(include: str | None) -> None:
    """Raises a RecipeError for a file of one's own that is no YAML: the harness passes over it and says nothing."""
    for path in () if include is None else sorted(local_path(include).glob("**/*.yaml")):
        try:
            yaml.compose(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            where = "evaluate.benchmarks.include"
            raise RecipeError("this file is no YAML", where=where, seen=f"{path}: {in_one_line(error)}") from error


@lru_cache(maxsize=4)
def _tasks(folder: str | None, content: str | None) -> TaskManager:
    """Reading thousands of files takes seconds; a folder is read again when its content is another."""
    del content
    return TaskManager(include_path=folder)
