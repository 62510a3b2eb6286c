"""The copy that a checkpoint is written from is a copy."""

from __future__ import annotations

import torch

from trainwright.artifact.checkpoint.index import MODEL
from trainwright.stages.train.saving.pieces import HostCopy
from trainwright.stages.train.world import ALONE


def test_a_copy_does_not_change_and_its_memory_is_used_again() -> None:
    weight, half, count = torch.randn(3, 5), torch.randn(4).bfloat16(), torch.tensor(7.0)
    tensors = [(MODEL, "weight", weight), (MODEL, "half", half), (MODEL, "count", count), (MODEL, "none", weight[:0])]
    copy = HostCopy()
    taken = {each.claim.name: each for each in copy.take(tensors, ALONE)}
    before = {name: b"".join(part.tobytes() for part in each.bytes().data) for name, each in taken.items()}
    assert before["weight"] == weight.numpy().tobytes()
    assert before["half"] == half.view(torch.uint8).numpy().tobytes()
    assert before["count"] == count.numpy().tobytes() and taken["count"].claim.whole == ()
    assert before["none"] == b"" and taken["none"].claim.whole == (0, 5)
    places = {name: each.tensor.data_ptr() for name, each in taken.items()}
    weight.add_(1)
    assert b"".join(part.tobytes() for part in taken["weight"].bytes().data) == before["weight"]
    again = {each.claim.name: each.tensor.data_ptr() for each in copy.take(tensors, ALONE)}
    assert again == places
    assert copy.size_bytes == 3 * 5 * 4 + 4 * 2 + 4
