"""Batches come in order, from any step on, and none is read that nobody asks for."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from trainwright.stages.train.loader import prefetched


class Counting:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        self.steps.append(step)
        return {"tokens": torch.tensor([step])}


def test_batches_come_in_order_and_each_is_read_once() -> None:
    source = Counting()
    assert [int(batch["tokens"]) for batch in prefetched(source, 3, 7)] == [3, 4, 5, 6]
    assert source.steps == [3, 4, 5, 6]


def test_batches_for_an_accelerator_lie_where_it_can_copy_them_from(monkeypatch) -> None:
    asked = []

    def pinned(tensor: torch.Tensor, device: object) -> torch.Tensor:
        asked.append(device)
        return tensor + 100

    monkeypatch.setattr("trainwright.runtime.accelerators.pinned", pinned)
    device = SimpleNamespace(type="cuda")
    assert [int(batch["tokens"]) for batch in prefetched(Counting(), 3, 5, device=device)] == [103, 104]
    assert asked == [device, device]
