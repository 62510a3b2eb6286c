"""How far an epoch that nobody has counted can be from its estimate."""

from __future__ import annotations

from trainwright.core.units import parse_duration
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts

TOKENS_DEVIATION = 0.27
"""Standard deviation of the logarithm of an epoch's true over its estimated tokens: 0.65 to 1.15 times as many were
counted in Python, English and Chinese with vocabularies of 512 to 32,768 (docs/lab/log.md)."""
PLAIN_TEXT = frozenset({"python-stdlib", "files", "text"})
"""Sources whose bytes are text. In records the other keys count as bytes too."""
RECORDS_DEVIATION = 0.85
"""The same of records: 0.26 to 1.15 times as many were counted."""
DOCUMENTS_DEVIATION = 1.8
"""The same of documents: a mean of 26 bytes to 9.7 kB is within the range."""


def deviation(recipe: Recipe, facts: DatasetFacts) -> float:
    """Returns the standard deviation of the logarithm of the run's true over its planned length."""
    if facts.counted or parse_duration(recipe.train.duration).unit != "epochs":
        return 0.0
    if recipe.task.kind.reads == "documents":
        return DOCUMENTS_DEVIATION
    plain = all(source.kind in PLAIN_TEXT for source in recipe.data.sources)
    return TOKENS_DEVIATION if plain else RECORDS_DEVIATION
