"""What of a training groups of pairs cannot have: a micro batch or a rank's part that ends inside a group. No torch."""

from __future__ import annotations

from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import EmbedSection
from trainwright.spec.workload import ParallelPlan

LEAST_TOKENS = 3
"""Of a text: one of its own, and those that an encoder's tokenizer puts before and behind it."""


def refusals(recipe: Recipe, parallel: ParallelPlan | None) -> tuple[str, ...]:
    """Returns why pairs are not learnt so, a line for each reason; empty where they are.

    Args:
        recipe: of the task ``embed``.
        parallel: a layout, whose micro batch counts; None: the recipe's micro batch counts, on one process.
    """
    train, how = recipe.train, recipe.task
    assert isinstance(how, EmbedSection)
    sizes = [size // train.sequence_tokens for size in train.sizes.different]
    micro = train.exec.micro_batch if parallel is None else parallel.micro_batch_sequences
    reasons = []
    if (room := train.sequence_tokens) < (least := LEAST_TOKENS * (texts := recipe.data.texts)):
        reasons.append(
            f"train.sequence_tokens={room} has no room for a token of each of {texts} texts: take at least {least}"
        )
    if how.group == 1 and texts == 2:
        reasons.append(
            "task.group=1: a positive is told apart from nothing, without hard negatives (data.sources.0.negatives); "
            "take task.group=16"
        )
    if uneven := [size for size in sizes if size % how.group]:
        reasons.append(
            f"a batch of {uneven[0]} pairs is not whole groups of task.group={how.group}: make train.batch_tokens a "
            f"multiple of {how.group * train.sequence_tokens}, which is train.sequence_tokens x task.group"
        )
    elif parallel is not None:
        places = range(parallel.dp_replicate * parallel.dp_shard)
        parts = [len(parallel.rows(size, place)) for size in sizes for place in places]
        if odd := [part for part in parts if part % how.group]:
            reasons.append(
                f"a rank has {odd[0]} pairs of a batch, which are not whole groups of task.group={how.group}; take "
                "fewer ranks, or a larger batch"
            )
    if isinstance(micro, int) and micro % how.group:
        reasons.append(
            f"micro_batch={micro}: pairs are told apart in groups of task.group={how.group}; take a multiple of it"
        )
    if train.exec.on_oom == "adapt":
        reasons.append("on_oom=adapt: a smaller micro batch may end inside a group; leave on_oom out")
    return tuple(reasons)
