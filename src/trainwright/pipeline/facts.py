"""What is known of a training's dataset: counted where it is there, estimated where it is not."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.artifact.reading import counted_facts
from trainwright.artifact.store import Artifact
from trainwright.pipeline.graph import STAGES, Step, corpus_bytes, inputs_of
from trainwright.planner.plan.estimated_facts import estimated_facts
from trainwright.spec.workload import DatasetFacts


def known_facts(step: Step, done: Mapping[str, Artifact], *, remote: bool = True) -> DatasetFacts:
    """Returns the facts; the corpus is asked for its size where there is no dataset and a length depends on it.

    Args:
        step: a training, or its plan, which has no dataset among its inputs.
        done: artefacts by step name.
        remote: whether the network may be asked for the size.

    Raises:
        DataError: the dataset is damaged, or neither dataset nor corpus is here and the length is in epochs.
    """
    inputs = inputs_of(step, done)
    if "dataset" in inputs:
        return counted_facts(inputs["dataset"])
    recipe = STAGES["plan"].settled(step.recipe, inputs)  # in the tokens of a base
    return estimated_facts(recipe, corpus_bytes=corpus_bytes(recipe, remote=remote))
