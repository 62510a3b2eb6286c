"""Files of artefacts read back: what a dataset says of itself, as its shards were counted, and a plan."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.artifact.shards import DATASET
from trainwright.artifact.store import Artifact
from trainwright.core.paths import read_object
from trainwright.core.records import from_json
from trainwright.spec.plan import Plan
from trainwright.spec.workload import DatasetFacts

PLAN = "plan.json"
"""The file of an artefact that holds a plan."""


def counted_facts(dataset: Artifact) -> DatasetFacts:
    """Returns the facts of a dataset that is there.

    Raises:
        DataError: its description is damaged.
    """
    dataset.verify({DATASET})
    return described_facts(dataset.path)


def described_facts(folder: Path) -> DatasetFacts:
    """Returns the facts of the dataset in a folder as ``dataset.json`` counts them; its digest is not checked."""
    record = json.loads((folder / DATASET).read_text(encoding="utf-8"))
    splits = record["splits"]
    return DatasetFacts(
        vocabulary=record["vocabulary"],
        train_tokens=splits["train"]["tokens"],
        train_documents=splits["train"]["documents"],
        validation_tokens=splits["validation"]["tokens"] if "validation" in splits else None,
        validation_documents=splits["validation"]["documents"] if "validation" in splits else None,
        counted=True,
        labels=tuple(record.get("labels", ())),
    )


def read_plan(path: Path) -> Plan:
    """Returns the plan in a file.

    Raises:
        DataError: there is none, or it is damaged.
    """
    return from_json(Plan, read_object(path), where=str(path))
