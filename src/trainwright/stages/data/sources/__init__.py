"""The kinds of sources: ours by name in ``spec/sections/corpus/sources.py``, others as ``package.module:Class``."""

from __future__ import annotations

from typing import Any

from trainwright.spec.sections.corpus.sources import SOURCE, SourceSection
from trainwright.stages.data.sources.base import Source


def source_of(section: SourceSection) -> Source[Any]:
    """Returns what lists and reads the files of a section.

    Raises:
        RecipeError: a plug-in cannot be imported.
    """
    source: Source[Any] = SOURCE.load(section.kind)(section)
    return source
