"""The kinds of sources, found by the table ``SOURCES``; a recipe may also name a class from outside the project."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainwright.core.registry import resolve
from trainwright.spec.sections.data import SourceSection
from trainwright.stages.data.sources.base import Source

SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "python-stdlib": "trainwright.stages.data.sources.files:PythonStdlib",
        "files": "trainwright.stages.data.sources.files:Files",
        "text": "trainwright.stages.data.sources.text:Text",
        "jsonl": "trainwright.stages.data.sources.jsonl:Jsonl",
        "parquet": "trainwright.stages.data.sources.parquet:Parquet",
    }
)
"""Kind to class, imported when a recipe names it."""


def source_of(section: SourceSection) -> Source[Any]:
    """Returns what lists and reads the files of a section.

    Raises:
        RecipeError: the kind is unknown or cannot be imported.
    """
    source: Source[Any] = resolve(section.kind, SOURCES, kind="source")(section)
    return source
