"""What a plan can know of a recipe's dataset: counted where it is there, estimated where it is not."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.core.units import parse_duration
from trainwright.pipeline.graph import corpus_bytes
from trainwright.pipeline.runner import find
from trainwright.planner.plan.workload import dataset_facts, estimated_facts
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts


def known_facts(recipe: Recipe, *, root: Path | None = None) -> DatasetFacts:
    """Returns the facts; the corpus is asked for its size only where the recipe's length is in epochs.

    Args:
        recipe: the run.
        root: the workspace where its dataset may be.

    Raises:
        DataError: the corpus is not here, and the length is in epochs.
    """
    if parse_duration(recipe.train.duration).unit != "epochs":
        return estimated_facts(recipe, corpus_bytes=None)
    prepared = None if root is None else find(recipe, root=root, upto="data").get("data")
    if prepared is None:
        return estimated_facts(recipe, corpus_bytes=corpus_bytes(recipe))
    prepared.verify({"report.json"})
    report = json.loads(prepared.file("report.json").read_text(encoding="utf-8"))
    return dataset_facts(report["splits"], vocabulary=prepared.summary["vocabulary"])
