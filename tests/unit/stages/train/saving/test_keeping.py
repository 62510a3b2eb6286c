"""What is kept: the last, the best, and one of every so many steps."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.spec.sections.train import TrainSection
from trainwright.stages.train.saving.keeping import Policy, measured


def test_a_recipe_says_what_is_kept() -> None:
    assert Policy.of(TrainSection()) == Policy(last=2)
    how = {"keep_checkpoints": 3, "keep_best": 2, "best_by": "max accuracy", "keep_every_steps": 5}
    section = TrainSection.model_validate({"exec": how})
    assert Policy.of(section) == Policy(last=3, best=2, every=5, metric="accuracy", largest=True)


def test_a_run_that_ends_with_its_best_weights_keeps_them() -> None:
    stopping = {"by": "max accuracy"}
    section = TrainSection.model_validate({"early_stopping": stopping})
    assert Policy.of(section) == Policy(last=2, best=1, metric="accuracy", largest=True)
    last = TrainSection.model_validate({"early_stopping": stopping | {"restore_best": False}})
    assert Policy.of(last) == Policy(last=2)


def test_the_last_the_best_and_those_for_good() -> None:
    values = {1: 0.5, 2: 0.1, 3: 0.9, 6: 0.1}
    assert Policy(last=1).kept(range(1, 7), values) == {6}
    assert Policy(last=1, best=1).kept(range(1, 7), values) == {2, 6}
    assert Policy(last=1, best=1, largest=True).kept(range(1, 7), values) == {3, 6}
    assert Policy(last=2, every=3).kept(range(1, 8), {}) == {3, 6, 7}
    assert Policy(last=1, best=9).kept([1, 2], {}) == {2}


def test_only_what_is_among_the_best_is_wanted() -> None:
    policy = Policy(last=1, best=2)
    assert policy.wants({"loss": 9.0}, {1: 1.0})
    assert not policy.wants({"loss": 9.0}, {1: 1.0, 2: 2.0})
    assert policy.wants({"loss": 1.5}, {1: 1.0, 2: 2.0})
    assert not policy.wants({"loss": 2.0}, {1: 1.0, 2: 2.0})  # of equals the earlier one


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(RecipeError, match="did you mean 'accuracy'") as caught:
        Policy(last=1, best=1, metric="acuracy").wants({"loss": 1.0, "accuracy": 0.5}, {})
    assert caught.value.where == "train.exec.best_by"


def test_a_folder_of_nothing_has_no_metrics(tmp_path) -> None:
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "checkpoint.json").write_text("{")
    assert measured(tmp_path, "loss") == {}
