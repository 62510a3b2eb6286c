"""Batches that grow have the sequences that full ones have, in their order: held to a list made by hand."""

from __future__ import annotations

import pytest
import torch

from trainwright.artifact.shards import TokenDataset
from trainwright.model.tasks.masked import Gaps, MaskedWindows
from trainwright.model.tasks.windows import Windows
from trainwright.spec.parts.batch_sizes import BatchPart, BatchSizes
from trainwright.stages.train.batches.keyed import KeyedBatches
from trainwright.stages.train.batches.ramped import Ramped

SEQUENCE = 16
HAND = [[0], [1], [2, 3, 4], [5, 6, 7], [8, 9, 10, 11, 12], [13, 14, 15, 16, 17]]
"""Sequences, counted from the start of the run, of two updates of one, two of three, then of five."""
SIZES = BatchSizes(
    full=5 * SEQUENCE,
    ramp=(BatchPart(batch_tokens=SEQUENCE, steps=2), BatchPart(batch_tokens=3 * SEQUENCE, steps=2)),
)


@pytest.fixture
def windows(dataset) -> Windows:
    split = TokenDataset.open(dataset.path).splits["train"]
    return Windows(split, sequence_tokens=SEQUENCE, batch_sequences=5, seed=3)


def masked(windows: Windows) -> MaskedWindows:
    return MaskedWindows(windows=windows, gaps=Gaps(mask=3, vocabulary=300, never=()), end_of_text=None, seed=3)


def keyed(windows: Windows) -> KeyedBatches:
    return KeyedBatches(masked(windows), 3)


@pytest.mark.parametrize("made", [lambda windows: windows, masked, keyed])
def test_updates_read_the_sequences_of_the_list(windows, made) -> None:
    full = made(windows)
    ramped = Ramped(full, SIZES, SEQUENCE)
    in_order = [full.batch(number) for number in range(4)]
    names = in_order[0].keys()
    whole = {name: torch.cat([batch[name] for batch in in_order]) for name in names}
    for step, numbers in enumerate(HAND):
        batch = ramped.batch(step)
        for name in names:
            assert torch.equal(batch[name], whole[name][numbers]), (step, name)
        for cut in range(len(numbers) + 1):  # as two ranks read them
            parts = [ramped.batch(step, range(cut)), ramped.batch(step, range(cut, len(numbers)))]
            assert all(torch.equal(torch.cat([part[name] for part in parts]), batch[name]) for name in names)
        assert [ramped.place(step, row) for row in range(len(numbers))] == [divmod(number, 5) for number in numbers]


def test_one_size_alone_changes_nothing(windows) -> None:
    ramped = Ramped(windows, BatchSizes(full=80, ramp=(BatchPart(batch_tokens=80, steps=3),)), SEQUENCE)
    for step in range(5):
        assert torch.equal(ramped.batch(step)["tokens"], windows.batch(step)["tokens"])
