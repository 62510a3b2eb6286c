"""Batches with keys: the keys of their rows, and nothing else is changed."""

from __future__ import annotations

import torch

from trainwright.model.dropout import sample_keys
from trainwright.stages.train.batches.keyed import KeyedBatches


def test_batches_carry_the_keys_of_their_rows() -> None:
    class Plain:
        def batch(self, step):
            return {"tokens": torch.full((6, 3), step)}

    keyed = KeyedBatches(Plain(), 9)
    batch = keyed.batch(2)
    assert batch.keys() == {"tokens", "samples"}
    assert torch.equal(batch["samples"], sample_keys(9, 2, range(6)))
    assert torch.equal(keyed.batch(2)["samples"], batch["samples"])
