"""What changes an address, and what does not."""

from __future__ import annotations

import pytest

from fixtures.planned_recipe import planned_recipe
from trainwright.pipeline import identities


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        ("optimize.steps=30", True),
        ("train.batch_tokens=65536", True),
        ("train.exec.threads=1", True),
        ("train.exec.micro_batch=2", True),
        ("train.exec.attention=sdpa", True),
        ("train.exec.update=foreach", True),
        ("train.exec.log_every_steps=3", False),
        ("serve.port=1", False),
    ],
)
def test_a_ladder_depends_on_what_it_measures_the_recipe_as_given_included(tmp_path, key, counts) -> None:
    plain, changed = planned_recipe(tmp_path), planned_recipe(tmp_path, key)
    assert plain != changed
    same = identities.optimize_identity(plain, {}) == identities.optimize_identity(changed, {})
    assert same is not counts


def test_an_answer_does_not_depend_on_where_it_was_asked_for(tmp_path) -> None:
    plain, moved = planned_recipe(tmp_path), planned_recipe(tmp_path, "serve.port=1")
    assert identities.serve_identity(plain, {}) == identities.serve_identity(moved, {})
    assert identities.plan_identity(plain, {}) != identities.plan_identity(
        planned_recipe(tmp_path, "train.exec.micro_batch=2"), {}
    )
