"""The kinds of sources: ours by their keys in ``spec/sections/data.py``, others as ``package.module:Class``."""

from __future__ import annotations

from typing import Any

from trainwright.core.registry import is_reference, load
from trainwright.spec.sections.data import SourceSection
from trainwright.stages.data.sources.base import Source


def source_of(section: SourceSection) -> Source[Any]:
    """Returns what lists and reads the files of a section.

    Raises:
        RecipeError: a plug-in cannot be imported.
    """
    reader = section.kind if is_reference(section.kind) else section.reader
    source: Source[Any] = load(reader, kind="source")(section)
    return source
