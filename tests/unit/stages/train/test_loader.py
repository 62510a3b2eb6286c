"""Batches come in order, from any step on, and none is read that nobody asks for."""

from __future__ import annotations

import torch

from trainwright.stages.train.loader import prefetched


class Counting:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def batch(self, step: int, rows: range | None = None) -> dict[str, torch.Tensor]:
        self.steps.append(step)
        return {"tokens": torch.tensor([step if rows is None else rows.stop])}


def whole(step: int) -> None:
    """All sequences of each batch."""


def test_batches_come_in_order_and_each_is_read_once() -> None:
    source = Counting()
    assert [int(batch["tokens"]) for batch in prefetched(source, 3, 7, whole)] == [3, 4, 5, 6]
    assert source.steps == [3, 4, 5, 6]


def test_each_step_has_rows_of_its_own() -> None:
    assert [int(batch["tokens"]) for batch in prefetched(Counting(), 1, 4, lambda step: range(10 * step))] == [
        10,
        20,
        30,
    ]


def test_batches_are_pinned_where_an_accelerator_copies_them(monkeypatch) -> None:
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(int(tensor)) or tensor)
    assert [int(batch["tokens"]) for batch in prefetched(Counting(), 0, 3, whole, pin=True)] == [0, 1, 2] == pinned
