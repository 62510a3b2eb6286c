"""What the plan of a recipe takes for granted, and how far an epoch that nobody counted can be from its estimate."""

from __future__ import annotations

from trainwright.core.units import parse_duration
from trainwright.planner.plan.estimated_facts import bytes_per_token
from trainwright.planner.plan.workload import validation_tokens
from trainwright.spec.plan import Assumption, Origin
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import DatasetFacts

TOKENS_DEVIATION = 0.27
"""Standard deviation of the logarithm of an epoch's true over its estimated tokens: 0.65 to 1.15 times as many were
counted in Python, English and Chinese with vocabularies of 512 to 32,768 (docs/lab/log.md)."""
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
    plain = all(source.plain_text for source in recipe.data.sources)
    return TOKENS_DEVIATION if plain else RECORDS_DEVIATION


def dataset_assumptions(recipe: Recipe, facts: DatasetFacts) -> tuple[Assumption, ...]:
    """Returns what the workload rests on: counted, from the recipe, or taken for want of a dataset."""
    source = "the dataset" if facts.counted else "data.tokenizer"
    vocabulary = Assumption("vocabulary", float(facts.vocabulary), "entries", "recipe", source, key="vocabulary")
    entries = [_validation(recipe, facts), vocabulary]
    if parse_duration(recipe.train.duration).unit == "epochs" and facts.train_tokens is not None:
        tokens = recipe.epoch_tokens(tokens=facts.train_tokens, documents=facts.train_documents or 0)
        origin: Origin = "recipe" if facts.counted else "default"
        entries.append(Assumption("tokens of an epoch", float(tokens), "tokens", origin, _origin(facts), key="epoch"))
    return tuple(entries)


def _validation(recipe: Recipe, facts: DatasetFacts) -> Assumption:
    count, asked = validation_tokens(recipe, facts), recipe.train.validation.tokens
    origin: Origin = "recipe" if count == asked or (facts.counted and facts.validation_tokens) else "default"
    guess = _origin(facts) if facts.validation_tokens else "the split's size is not known yet"
    source = "" if count == asked else guess
    return Assumption("tokens of a validation", float(count), "tokens", origin, source, key="validation")


def _origin(facts: DatasetFacts) -> str:
    """Returns the source of the sizes of splits, in words."""
    guess = f"estimated: the corpus's bytes, {bytes_per_token(facts.vocabulary):.2f} of them in a token"
    return "the dataset" if facts.counted else guess
