"""Whether a dataset suits a training: counted where it is there, else from what its corpus says at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import exp
from pathlib import Path

from trainwright.artifact.store import Artifact, open_artifact
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.registry import load
from trainwright.core.units import parse_duration
from trainwright.pipeline.graph import Step
from trainwright.planner.plan.recipe_assumptions import deviation
from trainwright.planner.plan.workload import counted_facts, estimated_facts, tokens_in, too_short
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts

SURE = 4.0
"""Standard deviations from an estimate beyond which nothing true is expected."""


def dataset_problems(step: Step, done: Mapping[str, Artifact]) -> Iterator[TrainwrightError]:
    """Yields why there can be no training on its dataset; ``where`` is a key of the recipe.

    Args:
        step: the training, or its plan, which has no dataset among its inputs.
        done: artefacts by step name; where the dataset is not among them, it is estimated.
    """
    source = step.inputs.get("dataset")
    dataset = open_artifact(source) if isinstance(source, Path) else done.get(source or "")
    try:
        facts = _estimated(step.recipe) if dataset is None else counted_facts(dataset)
        yield from _length(step.recipe, facts)
        if source is not None and step.recipe.task.labels:
            step.recipe.task.check_labels(facts.labels)
    except TrainwrightError as error:
        yield error


def _estimated(recipe: Recipe) -> DatasetFacts:
    in_epochs = parse_duration(recipe.train.duration).unit == "epochs"
    size = load("trainwright.stages.data.corpus.size:corpus_bytes_here", kind="function")
    head = load("trainwright.stages.data.corpus.head:labels_at_head", kind="function")
    try:
        facts = estimated_facts(recipe, corpus_bytes=size(recipe.data) if in_epochs else None)
        return replace(facts, labels=head(recipe.data) if recipe.task.labels else ())
    except TrainwrightError:  # of the tokenizer or the corpus, reported under its own key
        return DatasetFacts(vocabulary=recipe.data.tokenizer.vocabulary)


def _length(recipe: Recipe, facts: DatasetFacts) -> Iterator[RecipeError]:
    """A run that is shorter than one update; surely so, where its length is an estimate."""
    duration = parse_duration(recipe.train.duration)
    if duration.unit == "epochs" and duration.value and facts.train_tokens is None:
        return  # nobody knows
    most_tokens = tokens_in(recipe, recipe.train.duration, facts) * exp(SURE * deviation(recipe, facts))
    if round(most_tokens / recipe.train.batch_tokens) < 1:
        yield too_short(recipe, facts)
