"""When a validation is better, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.stopping import EarlyStoppingSection


def test_better_is_by_more_than_the_least_difference() -> None:
    least = EarlyStoppingSection(min_delta=0.5)
    assert least.metric == "loss" and least.is_better(9.0, None)
    assert [least.is_better(value, 2.0) for value in (1.4, 1.5, 1.6, 2.0, 9.0)] == [True, False, False, False, False]
    most = EarlyStoppingSection(by="max accuracy", min_delta=0.25)
    assert most.metric == "accuracy"
    assert [most.is_better(value, 0.5) for value in (0.8, 0.75, 0.5, 0.1)] == [True, False, False, False]
    assert not EarlyStoppingSection().is_better(2.0, 2.0), "as good is no better"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"patience": 0}, "greater than 0"),
        ({"min_delta": -1}, "greater than or equal to 0"),
        ({"by": "loss"}, "not min or max and a metric of validation"),
        ({"mode": "min"}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_meant_is_refused(keys, said) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainSection.model_validate({"early_stopping": keys})


def test_one_order_alone_says_which_validation_is_best() -> None:
    other = {"early_stopping": {"by": "min perplexity"}, "exec": {"keep_best": 1}}
    with pytest.raises(ValidationError, match="set both to the same"):
        TrainSection.model_validate(other)
    assert TrainSection.model_validate(other | {"early_stopping": {"by": "min perplexity", "restore_best": False}})
    assert TrainSection.model_validate(other | {"exec": {"keep_best": 0}})
