"""Whether a training is long enough, and its labels are those of its dataset, or of its corpus at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp

from trainwright.artifact.store import Artifact
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.registry import load
from trainwright.core.units import parse_duration
from trainwright.pipeline.facts import known_facts
from trainwright.pipeline.graph import Step, inputs_of
from trainwright.planner.plan.estimated_facts import deviation
from trainwright.planner.plan.workload import average_start, tokens_in, too_short
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
    try:
        facts = _facts(step, done)
        short = list(_length(step.recipe, facts))
        yield from short or _average(step.recipe, facts)
        if "dataset" in step.inputs and step.recipe.task.labels:
            step.recipe.task.check_labels(facts.labels if facts.counted else _labels_at_head(step.recipe))
    except TrainwrightError as error:
        yield error


def _facts(step: Step, done: Mapping[str, Artifact]) -> DatasetFacts:
    try:
        return known_facts(step, done, remote=False)
    except TrainwrightError:
        if "dataset" in inputs_of(step, done):
            raise
        # What is wrong with the tokenizer or the corpus is reported under its own key.
        return DatasetFacts(vocabulary=step.recipe.data.tokenizer.vocabulary)


def _labels_at_head(recipe: Recipe) -> tuple[str, ...]:
    try:
        labels: tuple[str, ...] = load("trainwright.stages.data.corpus.head:labels_at_head", kind="function")(
            recipe.data
        )
        return labels
    except TrainwrightError:
        return ()  # reported under its own key too


def _length(recipe: Recipe, facts: DatasetFacts) -> Iterator[RecipeError]:
    """Yields a run that is shorter than one update; surely so, where its length is an estimate."""
    duration = parse_duration(recipe.train.duration)
    if duration.unit == "epochs" and duration.value and facts.train_tokens is None:
        return  # nobody knows
    most_tokens = tokens_in(recipe, recipe.train.duration, facts) * exp(SURE * deviation(recipe, facts))
    if recipe.train.sizes.steps(most_tokens) < 1:
        yield too_short(recipe, facts)


def _average(recipe: Recipe, facts: DatasetFacts) -> Iterator[RecipeError]:
    """Yields an average of the weights that begins after the run; surely so, where lengths are estimates."""
    if recipe.train.ema is None:
        return
    run, before = parse_duration(recipe.train.duration), parse_duration(recipe.train.ema.start)
    exact = facts.counted or {run.unit, before.unit} <= {"steps", "tokens"}
    if not exact and (run.unit != before.unit or before.value < run.value):
        return
    if run.unit == "epochs" and facts.train_tokens is None:
        return  # nobody knows
    try:
        average_start(recipe, facts)
    except RecipeError as error:
        yield error
