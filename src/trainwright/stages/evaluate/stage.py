"""The stage: what the task measures on each split, and for a language model what to compare it with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainwright.artifact.evaluation import FILE, FORMAT
from trainwright.artifact.events import Events
from trainwright.artifact.model_folder import MODEL_FILES, TARGET_SCALE, TOKENIZER, read_target_scale
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.shards import ANSWERED, LABELLED, NUMBERS, TokenDataset, TokenSplit
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.errors import DataError, MissingPackage, RecipeError
from trainwright.core.fingerprint import digest
from trainwright.core.plug_in import blaming
from trainwright.core.registry import installed, load
from trainwright.model.bundle import load_network
from trainwright.model.conventions import read_tokenizer
from trainwright.model.network import Network
from trainwright.model.tasks.preferences.references import read_references
from trainwright.model.tasks.task import EvaluationOptions, Task, load_task, refers
from trainwright.runtime.device import DTYPES
from trainwright.runtime.execution import execution_of, torch_settings
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.asking import ask
from trainwright.stages.evaluate.language import Comparison, compare

WORDS = "trainwright.stages.evaluate.words:by_words"
"""Loaded where scikit-learn is installed."""
BENCHMARKS = "trainwright.stages.evaluate.harness.measure:measured"
"""Loaded where benchmarks are asked for, and lm-eval is installed."""


def run(context: Context) -> StageResult:
    """Measure the trained model; a split that an interrupted run has finished is not measured again.

    Raises:
        DataError: a damaged shard or model, a split that the dataset does not have, or a reference is missing.
        RecipeError: the model was trained for other labels.
    """
    started = time.perf_counter()
    recipe, out, events = context.recipe, context.out, context.events
    planned, prepared, trained = context.input("plan"), context.input("dataset"), context.input("checkpoint")
    planned.verify()
    plan = read_plan(planned.file(PLAN))
    prepared.verify()
    trained.verify(MODEL_FILES)
    dataset = _in_scale_of(trained, TokenDataset.open(prepared.path))
    splits: dict[str, TokenSplit] = {name: _split(dataset, name) for name in recipe.evaluate.splits}
    here = execution_of(plan, recipe.train.exec)
    with torch_settings(here):
        threads = torch.get_num_threads()
        # As in training: weights in fp32, arithmetic in the plan's precision.
        precision = DTYPES[plan.workload.precision]
        model = load_network(trained.path, device=here.device, compute_dtype=precision)
        _check_labels(recipe, model)
        task = load_task(recipe, dataset)
        if refers(task):
            task = task.referring(read_references(trained.path, dataset))
        results = {
            name: _kept(out / f".{name}.json", partial(_measure, recipe, task, model, split, events))
            for name, split in splits.items()
        }
    comparison = _comparison(recipe, dataset, splits, results, model=model, trained=trained, events=events)
    for name, baselines in comparison.baselines.items():
        results[name]["baselines"] = baselines
    asked = {
        "questions": _questions(recipe, dataset, model, trained, out=out, events=events),
        "benchmarks": _benchmarks(recipe, dataset, model, trained, out=out, events=events),
    }
    record = {
        "format": FORMAT,
        "task": recipe.task.name,
        "precision": plan.workload.precision,
        "sequence_tokens": recipe.train.sequence_tokens,
        "document_masking": recipe.masks_documents,
        "splits": results,
        "baselines_skipped": comparison.skipped,
        "completions": comparison.completions,
        "overlap_searched_bytes": comparison.searched_bytes,
        **{key: found for key, found in asked.items() if found},
    }
    write_atomically(out / FILE, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return StageResult(
        summary=_headline(results, **asked),
        execution={"device": here.device.type, "threads": threads, "total_s": time.perf_counter() - started},
    )


def _headline(
    splits: Mapping[str, Any], *, questions: Mapping[str, Any], benchmarks: Mapping[str, Any]
) -> dict[str, float]:
    """Returns each value by the name of what was measured, and of the metric."""
    parts = (splits, {"questions": questions} if questions else {}, benchmarks.get("tasks", {}))
    named = (item for part in parts for item in part.items())  # a benchmark may have a split's name
    return {f"{name}_{key}": metric["value"] for name, result in named for key, metric in result["metrics"].items()}


def _in_scale_of(trained: Artifact, dataset: TokenDataset) -> TokenDataset:
    """Returns the dataset with its numbers in what the model tells them in, be it of another dataset."""
    if dataset.kind != NUMBERS:
        return dataset
    return replace(dataset, scale=read_target_scale(trained.file(TARGET_SCALE).parent))


def _comparison(
    recipe: Recipe,
    dataset: TokenDataset,
    splits: Mapping[str, TokenSplit],
    results: Mapping[str, Mapping[str, Any]],
    *,
    model: Network,
    trained: Artifact,
    events: Events,
) -> Comparison:
    """Returns what a language model, or a classifier of texts, is held against."""
    if model.spec.writes_text:
        events.message("counting n-grams and compressing, to compare with")
        return compare(recipe, dataset, splits, model, read_tokenizer(trained.file(TOKENIZER)))
    labelled = dataset.kind == LABELLED and not model.spec.sees_images
    if not labelled or not all("macro_f1" in result["metrics"] for result in results.values()):
        return Comparison()
    events.message("counting words, to compare with")
    measured = {name: (splits[name], result["count"]) for name, result in results.items()}
    comparison = _words(dataset, measured, read_tokenizer(trained.file(TOKENIZER)))
    if comparison.skipped:
        events.message(comparison.skipped)
    return comparison


def _questions(
    recipe: Recipe, dataset: TokenDataset, model: Network, trained: Artifact, *, out: Path, events: Events
) -> dict[str, Any]:
    """Returns how many of the recipe's questions the model answers right; nothing where none are asked."""
    if recipe.evaluate.questions is None:
        return {}

    def show(done: int, total: int) -> None:
        events.progress("ask questions", done, total=total, unit="questions")

    chats = dataset if recipe.task.kind.needs in ANSWERED else None
    found = ask(recipe, model, read_tokenizer(trained.file(TOKENIZER)), chats, out=out, progress=show)
    for name, metric in found["metrics"].items():
        events.metric(f"evaluate/questions/{name}", metric["value"], unit=metric["unit"])
    return found


def _benchmarks(
    recipe: Recipe, dataset: TokenDataset, model: Network, trained: Artifact, *, out: Path, events: Events
) -> dict[str, Any]:
    """Returns what the recipe's benchmarks measure, each kept when it is done; nothing where there are none."""
    section = recipe.evaluate.benchmarks
    if section is None:
        return {}
    if not installed("lm_eval"):
        raise MissingPackage("lm-eval", needed_for="evaluate.benchmarks", extra="benchmarks")
    measured = load(BENCHMARKS, kind="function")
    chats = dataset if recipe.task.kind.needs in ANSWERED else None
    tasks: dict[str, Any] = {}
    for name in section.tasks:
        events.message(f"benchmark {name}")
        ask = partial(measured, recipe, model, trained.file(TOKENIZER), chats, name, events=events)
        tasks |= _kept(out / f".benchmark-{digest([name])[:16]}.json", ask)
    return {"harness": f"lm-eval {version('lm-eval')}", "few_shot": section.few_shot, "tasks": tasks}


def _words(dataset: TokenDataset, splits: Mapping[str, tuple[TokenSplit, int]], tokenizer: Tokenizer) -> Comparison:
    """Returns what words alone tell of documents with labels, or why nobody knows."""
    if not installed("sklearn"):
        missing = MissingPackage("scikit-learn", needed_for="the comparison with TF-IDF", extra="baselines")
        return Comparison(skipped=str(missing))
    if "train" not in dataset.splits:
        return Comparison(skipped="no comparison with TF-IDF: the dataset has no train split")
    by_words = load(WORDS, kind="function")
    try:
        return Comparison(baselines=by_words(dataset.splits["train"], splits, tokenizer, dataset.labels))
    except DataError as error:
        return Comparison(skipped=f"no comparison with TF-IDF: {error}")


def _check_labels(recipe: Recipe, network: Network) -> None:
    told = network.spec.labels
    if told is not None and told != recipe.task.labels:
        seen = ", ".join(recipe.task.labels) or "no labels"
        raise RecipeError(
            "the model tells other labels, or in another order",
            where="task.labels",
            seen=seen,
            expected=", ".join(told),
        )


def _split(dataset: TokenDataset, name: str) -> TokenSplit:
    split = dataset.splits.get(name)
    if split is None or split.tokens < 2:
        raise DataError(
            "the dataset has no {name} split to measure",
            where=dataset.path,
            seen=", ".join(f"{key} ({value.tokens} tokens)" for key, value in dataset.splits.items()),
            fix=f"give it a share in data.split, or take {name!r} out of evaluate.splits",
            name=name,
        )
    return split


def _measure(recipe: Recipe, task: Task, network: Network, split: TokenSplit, events: Events) -> dict[str, Any]:
    """Returns what the task measures on one split, and how fast."""
    started = time.perf_counter()

    def show(done: int, total: int) -> None:
        events.progress(f"evaluate {split.name}", done, total=total, unit=f"{task.unit}s")

    options = EvaluationOptions(
        batch_sequences=recipe.evaluate.exec.batch_sequences,
        tokens=recipe.evaluate.tokens,
        detailed=True,
        progress=show,
    )
    evaluation = task.evaluate(network, split, options)
    with blaming(recipe.task.name, where="task.name"):
        measured = evaluation.as_json(unit=task.unit)
    seconds = time.perf_counter() - started
    for name, metric in evaluation.metrics.items():
        events.metric(f"evaluate/{split.name}/{name}", metric.value, unit=metric.unit)
    return measured | {"seconds": seconds}


def _kept(part: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns what an interrupted run measured, or what is measured now; in ``part`` until the stage is complete."""
    if part.is_file():
        kept: dict[str, Any] = json.loads(part.read_text(encoding="utf-8"))
        return kept
    result = measure()
    write_atomically(part, json.dumps(result).encode())
    return result
