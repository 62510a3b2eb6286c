"""The keys of schedules."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.schedule import SCHEDULE_KEYS, SCHEDULES, ScheduleSection


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_name_decides_the_keys(name):
    section = TrainSection.model_validate({"schedule": {"name": name}}).schedule
    assert section.name == name and type(section) is SCHEDULE_KEYS.get(name, ScheduleSection)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"name": "constant", "final_ratio": 0.5}, "final_ratio"),
        ({"name": "cosine", "decay_fraction": 0.5}, "decay_fraction"),
        ({"name": "wsd", "decay_fraction": 0}, "greater than 0"),
        ({"name": "linear", "final_ratio": 2}, "less than or equal to 1"),
    ],
)
def test_keys_of_others_and_values_out_of_range_are_refused(schedule, words):
    with pytest.raises(ValueError, match=words):
        TrainSection.model_validate({"schedule": schedule})
