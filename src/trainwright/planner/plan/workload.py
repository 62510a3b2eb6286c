"""From a recipe and what is known of its dataset to the workload: the one place where lengths become steps."""

from __future__ import annotations

from trainwright.core.errors import RecipeError
from trainwright.core.registry import load
from trainwright.core.units import parse_duration
from trainwright.planner.counts.parameters import total_parameters
from trainwright.spec.recipe import Recipe
from trainwright.spec.workload import Adapter, DatasetFacts, Frozen, Precision, Workload

ADAPTER = "trainwright.planner.counts.adapters:adapter_of"
"""Loaded where adapters are trained."""
DEFAULT_VALIDATION_TOKENS = 100_000
"""Taken where the recipe validates on a whole split whose size is not known yet."""


def resolve(recipe: Recipe, facts: DatasetFacts, *, precision: Precision) -> Workload:
    """Returns the workload of a recipe: its batch, its steps, its validations.

    Args:
        recipe: the run.
        facts: of the dataset, counted or estimated.
        precision: of the matrices, with ``auto`` resolved.

    Raises:
        RecipeError: the run is shorter than one update, or its length is not known.
    """
    section = recipe.train
    steps = steps_in(recipe, section.duration, facts)
    if steps < 1:
        raise too_short(recipe, facts)
    return Workload(
        sequence_tokens=section.sequence_tokens,
        batch_tokens=section.batch_tokens,
        ramp=section.sizes.ramp,
        steps=steps,
        precision=precision,
        optimizer=section.optimizer.counted,
        recompute=section.recompute,
        recompute_budget=section.recompute_budget,
        document_masking=recipe.masks_documents,
        moments=section.optimizer.reduced_moments,
        activation_offload=section.activation_offload,
        adapter=adapters_of(recipe, facts.vocabulary, precision),
        average_every=0 if section.ema is None else section.ema.every_steps,
        fused_attention=not recipe.model.dropout.attention,
        validation_tokens=validation_tokens(recipe, facts),
        validations=-(-steps // section.validation.every_steps) if recipe.data.split.validation > 0 else 0,
    )


def adapters_of(recipe: Recipe, vocabulary: int, precision: Precision) -> Adapter | None:
    """Returns the adapters that are trained; what is frozen beside them is kept in the dtype of products, or in nf4."""
    method = recipe.train.method
    if not method.adapts:
        return None
    model = recipe.model_spec(vocabulary=vocabulary)
    frozen: Frozen = "nf4" if method.frozen == "nf4" else "fp32" if precision in ("fp32", "tf32") else "bf16"
    try:
        adapter_of = load(ADAPTER, kind="method")
        adapter: Adapter = adapter_of(model, method.targets, rank=method.rank, frozen=frozen, method=method.name)
    except RecipeError as error:
        raise error.at("train.method.targets") from error
    return adapter


def validation_tokens(recipe: Recipe, facts: DatasetFacts) -> int:
    """Returns the tokens of one validation: those that are asked for, of a split that may be smaller.

    An image has as many as a sequence, however many values its pixels have.
    """
    there = facts.validation_tokens
    if recipe.data.images is not None and facts.validation_documents is not None:
        there = facts.validation_documents * recipe.train.sequence_tokens
    known = (recipe.train.validation.tokens, there)
    return min(filter(None, known), default=DEFAULT_VALIDATION_TOKENS)


def too_short(recipe: Recipe, facts: DatasetFacts) -> RecipeError:
    """Returns the error for a run that rounds to no update."""
    section = recipe.train
    tokens, unit = tokens_in(recipe, section.duration, facts), parse_duration(section.duration).unit
    about = "about " if unit == "epochs" and not facts.counted else ""
    return RecipeError(
        "the run is shorter than one update",
        where="train.duration",
        seen=section.duration + (f", which is {about}{tokens:,} tokens" if tokens and unit != "tokens" else ""),
        expected=f"at least {_first_batch(recipe)}",
        fix="write for example 100 steps",
    )


def _first_batch(recipe: Recipe) -> str:
    section = recipe.train
    key = "train.batch_ramp.0.batch_tokens" if section.batch_ramp else "train.batch_tokens"
    return f"{key} ({section.sizes.at(0):,})"


def average_start(recipe: Recipe, facts: DatasetFacts) -> int:
    """Returns the steps of the run before the average of the weights begins; 0 where there is none.

    Raises:
        RecipeError: the run ends before; or as ``tokens_in``.
    """
    if recipe.train.ema is None:
        return 0
    steps = steps_in(recipe, recipe.train.duration, facts)
    start = steps_in(recipe, recipe.train.ema.start, facts)
    if start >= steps:
        raise RecipeError(
            "the run ends before the average of its weights begins",
            where="train.ema.start",
            seen=f"{start:,} steps",
            expected=f"fewer than the run's {steps:,}",
        )
    return start


def steps_in(recipe: Recipe, duration: str, facts: DatasetFacts) -> int:
    """Returns the updates in a duration, rounded to whole ones; raises as ``tokens_in``."""
    asked = parse_duration(duration)
    if asked.unit == "steps":
        return round(asked.value)
    return recipe.train.sizes.steps(tokens_in(recipe, duration, facts))


def tokens_in(recipe: Recipe, duration: str, facts: DatasetFacts) -> int:
    """Returns the tokens in a duration, before rounding to whole updates.

    Raises:
        RecipeError: it is in epochs, and nothing is known of the dataset.
    """
    epoch_tokens = None
    if facts.train_tokens is not None:
        epoch_tokens = recipe.epoch_tokens(tokens=facts.train_tokens, documents=facts.train_documents or 0)
    asked = parse_duration(duration)
    if asked.unit == "steps":
        return recipe.train.sizes.tokens(round(asked.value))
    return asked.tokens(
        batch_tokens=recipe.train.batch_tokens,
        parameters=total_parameters(recipe.model_spec(vocabulary=facts.vocabulary)),
        epoch_tokens=epoch_tokens,
    )
