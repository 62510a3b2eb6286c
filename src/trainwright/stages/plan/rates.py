"""What a plan says of peak rates that follow the batch or the width: the resulting numbers, and what they are of."""

from __future__ import annotations

from trainwright.core.units import format_count
from trainwright.spec.plan import Assumption
from trainwright.spec.recipe import Recipe


def rate_assumptions(recipe: Recipe) -> tuple[Assumption, ...]:
    """Returns the peak rates that a recipe scales; none where they are as it writes them."""
    train, model = recipe.train, recipe.model
    lr, entries = train.optimizer.lr, list[Assumption]()
    if train.rate_scaling is not None:
        source = (
            f"{lr:g} of batches of {format_count(train.rate_scaling.base_batch_tokens)} tokens, "
            f"times {train.rate_factor:.4g} (train.rate_scaling, {train.rate_scaling.rule})"
        )
        entries.append(Assumption("peak rate", lr * train.rate_factor, "", "recipe", source, key="peak_rate"))
    if model.mup is not None:
        by, peak = model.width_ratio, lr * train.rate_factor
        source = f"{peak:g} of a width of {model.mup.base_width}, over {by:.4g}; logits over {by:.4g} too (model.mup)"
        entries.append(
            Assumption("peak rate of the blocks' matrices", peak / by, "", "recipe", source, key="matrix_peak_rate")
        )
    return tuple(entries)
