"""The training run's section: lengths as the user wrote them, sizes that cannot be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.train import TrainSection


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ({"sequence_tokens": 100, "batch_tokens": 250}, "nearest that is: 200"),
        ({"duration": "5"}, "unknown unit of duration"),
        ({"duration": "5 parsecs"}, "unknown unit of duration"),
        ({"optimizer": {"betas": [2, 0.9]}}, "less than 1"),
        ({"exec": {"micro_batch": 0}}, "greater than 0"),
        ({"exec": {"threads": -1}}, "greater than 0"),
        ({"exec": {"threads": 100_000}}, "less than or equal to 1024"),
    ],
)
def test_impossible_runs_say_why(section, part) -> None:
    with pytest.raises(ValidationError, match=part):
        TrainSection.model_validate(section)


def test_durations_keep_the_words_of_the_user() -> None:
    assert TrainSection(duration="20 tok/param").duration == "20 tok/param"
    assert TrainSection.model_validate({"batch_tokens": "64k", "sequence_tokens": 1000}).batch_tokens == 64_000
