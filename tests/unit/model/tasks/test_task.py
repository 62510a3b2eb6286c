"""The protocol tells a task from what is none."""

from __future__ import annotations

from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Evaluation, Task


def test_a_task_is_known_by_what_it_offers() -> None:
    assert isinstance(NextToken(sequence_tokens=4), Task)
    assert not isinstance(object(), Task)


def test_record_and_details_are_empty_unless_they_are_made() -> None:
    assert (Evaluation(count=1, metrics={}).record, Evaluation(count=1, metrics={}).details) == ({}, {})
