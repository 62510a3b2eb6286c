"""Groups stay whole: a layout or a batch that would cut one is refused before anything runs, in one line."""

from __future__ import annotations

import re

import pytest

from fixtures.paired import SEQUENCE, embed_recipe
from trainwright.model.tasks.embeddings.refusals import refusals
from trainwright.spec.workload import ParallelPlan


def test_whole_groups_are_learnt() -> None:
    assert refusals(embed_recipe(), None) == ()
    assert refusals(embed_recipe(train={"exec": {"micro_batch": 8}}), None) == ()
    assert refusals(embed_recipe(), ParallelPlan(dp_shard=2, micro_batch_sequences=4)) == ()


@pytest.mark.parametrize(
    ("train", "parallel", "said"),
    [
        ({"batch_tokens": 6 * SEQUENCE}, None, f"batch of 6 pairs .* a multiple of {4 * SEQUENCE}"),
        ({"exec": {"micro_batch": 3}}, None, "micro_batch=3: .* task.group=4; take a multiple"),
        ({}, ParallelPlan(micro_batch_sequences=2), "micro_batch=2: "),
        ({}, ParallelPlan(dp_replicate=4, micro_batch_sequences=4), "a rank has 2 pairs of a batch"),
        ({}, ParallelPlan(dp_shard=3, micro_batch_sequences=4), "a rank has . pairs of a batch"),
        ({"exec": {"on_oom": "adapt"}}, None, "on_oom=adapt"),
        ({"sequence_tokens": 5, "batch_tokens": 40}, None, "sequence_tokens=5 .* each of 2 texts: take at least 6"),
    ],
)
def test_what_cuts_a_group_is_named(train, parallel, said) -> None:
    (reason,) = refusals(embed_recipe(train=train), parallel)
    assert re.search(said, reason), reason


def test_a_positive_needs_something_that_it_is_told_apart_from() -> None:
    (reason,) = refusals(embed_recipe({"group": 1}), None)
    assert reason.startswith("task.group=1: a positive is told apart from nothing")
    assert refusals(embed_recipe({"group": 1}, negatives=1), None) == ()
