"""What one benchmark measures of a trained model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from lm_eval.evaluator import evaluate

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError, TrainwrightError, in_one_line
from trainwright.model.chats.template import Render, read_template
from trainwright.model.conventions import read_conventions, read_tokenizer
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.evaluate import BenchmarksSection
from trainwright.stages.evaluate.harness.model import HarnessModel
from trainwright.stages.evaluate.harness.tasks import WHERE, tasks_of

FEW_SHOT_SEED = 1234
"""The harness's own: the same solved examples as everywhere."""
BOOTSTRAPS = 1000
"""Samples drawn for the standard error of a metric that is no mean."""


def measured(
    recipe: Recipe, network: Network, tokenizer: Path, chats: TokenDataset | None, name: str, *, events: Events
) -> dict[str, Any]:
    """Returns what a benchmark measures, by name: of a group what it sums up, and each of its tasks.

    Args:
        recipe: with ``evaluate.benchmarks``.
        network: writes text.
        tokenizer: the network's, in the folder of its model.
        chats: the dataset of chats that it learnt from, by whose template it is asked; None: by no template.
        name: of the task or group.
        events: told of requests that are done, and of each metric.

    Raises:
        RecipeError: a task wants answers longer than the context.
        DataError: the benchmark fails, as where its data must be downloaded and there is no network.
    """
    section = recipe.evaluate.benchmarks
    assert section is not None
    read = read_tokenizer(tokenizer)
    model = HarnessModel(
        network,
        read,
        read_conventions(tokenizer.parent, read),
        batch_sequences=recipe.evaluate.exec.batch_sequences,
        render=None if chats is None else _template(chats),
        progress=lambda done, total: events.progress(f"benchmark {name}", done, total=total, unit="requests"),
    )
    found = _evaluate(model, section, name)
    tasks = {
        task: {
            "count": values["sample_len"],
            "version": str(found["versions"][task]),
            "metrics": dict(_metrics(values)),
        }
        for task, values in _groups_first(found).items()
        if "sample_len" in values  # a group that sums up nothing has none
    }
    for task, result in tasks.items():
        for key in _not_finite(found["results"][task]):
            events.message(f"benchmark {task}: {key} is no finite number, and is left out")
        for metric, value in result["metrics"].items():
            events.metric(f"evaluate/{task}/{metric}", value["value"])
    return tasks


def _evaluate(model: HarnessModel, section: BenchmarksSection, name: str) -> Mapping[str, Any]:
    """Returns the harness's own record."""
    loaded = _loaded(section, name)
    for task in loaded["tasks"].values():
        own = task.get_config("num_fewshot")
        if own is None or (section.few_shot is not None and own != 0):  # a 0 of its own stays, as in the harness
            task.set_config(key="num_fewshot", value=section.few_shot or 0)
        task.set_fewshot_seed(seed=FEW_SHOT_SEED)
    try:
        found: Mapping[str, Any] = evaluate(
            lm=model,
            task_dict=loaded,
            limit=section.limit,
            log_samples=False,
            bootstrap_iters=BOOTSTRAPS,
            apply_chat_template=model.chats,
            fewshot_as_multiturn=model.chats,  # as the harness's own command does
        )
    except (TrainwrightError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        fix = "mend the task, or take it out; --debug shows the traceback"
        raise DataError("a benchmark fails", where=WHERE, seen=f"{name}: {in_one_line(error)}", fix=fix) from error
    return found


def _loaded(section: BenchmarksSection, name: str) -> Mapping[str, Any]:
    """Returns a task with its data, or the tasks of a group. Raises a DataError where the data cannot be read."""
    manager = tasks_of(section)
    try:
        loaded: Mapping[str, Any] = manager.load([name])
    except Exception as error:
        fix = "where there is no network, run it once with one, or take a task whose data is here"
        raise DataError(
            "the data of a benchmark cannot be read", where=WHERE, seen=f"{name}: {in_one_line(error)}", fix=fix
        ) from error
    return loaded


def _groups_first(found: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Returns what was found by name: groups before their parts, then tasks."""
    return dict(reversed(found.get("groups", {}).items())) | found["results"]


def _template(chats: TokenDataset) -> Render:
    return read_template(str(chats.path), chats.tokenizer_path, end_of_text=chats.end_of_text).renderer()


def _metrics(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields each metric with its standard error, where there is one, by name; a filter of answers is part of that."""
    for key, value in values.items():
        name, _, by = key.partition(",")
        if not by or name.endswith("_stderr") or not _is_number(value):
            continue
        error = values.get(f"{name}_stderr,{by}")
        beside = {"stderr": float(error)} if _is_number(error) else {}
        yield (name if by == "none" else f"{name} ({by})"), {"value": float(value)} | beside


def _not_finite(values: Mapping[str, Any]) -> list[str]:
    """Returns the metrics, not their errors, that are numbers and not finite."""
    numbers = {key: value for key, value in values.items() if "," in key and "_stderr," not in key}
    return [
        key.partition(",")[0] for key, value in numbers.items() if isinstance(value, float) and not _is_number(value)
    ]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)
