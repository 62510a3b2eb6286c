"""What a plan can know of a recipe's dataset: counted where it is there, estimated where it is not."""

from __future__ import annotations

from pathlib import Path

from trainwright.pipeline.graph import corpus_bytes
from trainwright.pipeline.runner import left_here
from trainwright.planner.plan.workload import counted_facts, estimated_facts
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts


def known_facts(recipe: Recipe, *, root: Path | None = None) -> DatasetFacts:
    """Returns the facts; the corpus is asked for its size where there is no dataset and a length depends on it.

    Args:
        recipe: the run.
        root: the workspace where its dataset may be.

    Raises:
        DataError: neither dataset nor corpus is here, and the length is in epochs.
    """
    dataset = None if root is None else left_here(recipe, {}, root=root, kind="dataset")
    return estimated_facts(recipe, corpus_bytes=corpus_bytes(recipe)) if dataset is None else counted_facts(dataset)
