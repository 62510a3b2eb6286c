"""The keys of sources: paths where files are named, and which of them give labelled records of what kind."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.corpus.sources import SOURCE_KEYS, SOURCES
from trainwright.spec.sections.data import DataSection


def test_each_kind_of_source_has_its_keys() -> None:
    assert SOURCE_KEYS.keys() == SOURCES.keys()


@pytest.mark.parametrize(
    ("keys", "records", "labelled"),
    [
        ({"kind": "python-stdlib"}, "documents", False),
        ({"kind": "python-stdlib-packages"}, "documents", True),
        ({"kind": "jsonl", "paths": ["a"]}, "documents", False),
        ({"kind": "jsonl", "paths": ["a"], "label_key": "label"}, "documents", True),
        ({"kind": "csv", "paths": ["a"], "label_column": "label"}, "documents", True),
        ({"kind": "python-stdlib-chats"}, "chats", False),
        ({"kind": "sklearn-digits"}, "images", True),
    ],
)
def test_a_source_says_what_it_gives(keys, records, labelled) -> None:
    images = {"images": {"size": 8}} if records == "images" else {}
    section = DataSection.model_validate({"sources": [keys]} | images)
    assert (section.records, section.labelled) == (records, labelled)


@pytest.mark.parametrize("kind", ["files", "text", "jsonl", "parquet"])
def test_each_source_needs_paths(kind) -> None:
    assert DataSection(sources=[{"kind": kind, "paths": ["a"]}]).sources[0].kind == kind
    for paths in ([], None):
        with pytest.raises(ValidationError):
            DataSection(sources=[{"kind": kind, "paths": paths}])
    with pytest.raises(ValidationError, match="python-stdlib"):
        DataSection(sources=[{"kind": "pyhton-stdlib"}])
