"""The protocol tells a task from what is none."""

from __future__ import annotations

import torch

from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.task import Evaluation, Task, batch_of


def test_a_task_is_known_by_what_it_offers() -> None:
    assert isinstance(NextToken(sequence_tokens=4), Task)
    assert not isinstance(object(), Task)


def test_record_and_details_are_empty_unless_they_are_made() -> None:
    assert (Evaluation(count=1, metrics={}).record, Evaluation(count=1, metrics={}).details) == ({}, {})


def test_a_plug_ins_batches_need_know_no_rows_for_a_process_alone() -> None:
    class Whole:
        def batch(self, step: int) -> dict[str, torch.Tensor]:
            return {"tokens": torch.full((2, 3), step)}

    assert int(batch_of(Whole(), 7, None)["tokens"][0, 0]) == 7  # type: ignore[arg-type]  # as a plug-in may be
