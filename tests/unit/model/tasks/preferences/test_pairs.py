"""Both chats of a pair lie in one sequence, each a document; every target's place in the split is known."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.pairs import SEQUENCE, sizes_of, write_pairs
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.preferences.pairs import NOWHERE, PackedPairs, pair_places


@pytest.fixture
def packed(tmp_path) -> PackedPairs:
    split = write_pairs(tmp_path, sizes_of(15)).splits["train"]
    reference = np.arange(split.tokens, dtype=np.float32)
    numbers = np.arange(15)
    return PackedPairs(
        split=split, sequence_tokens=SEQUENCE, batch_sequences=4, seed=1, chats=numbers, reference=reference
    )


def test_a_pair_takes_the_places_of_both_its_chats(packed):
    sizes = np.array(sizes_of(15))
    assert pair_places(packed.split).tolist() == (sizes.sum(axis=1) - 2).tolist()
    assert pair_places(packed.split, 5).tolist() == (sizes.sum(axis=1) - 2)[:2].tolist(), "a half is none"


def test_each_pair_lies_in_one_sequence_once_an_epoch(packed):
    packing = packed.packing(0)
    assert sorted(pair for row in range(packing.sequences) for pair in packing.of(row)) == list(range(15))


def test_targets_are_the_tokens_at_their_places(packed):
    packing = packed.packing(0)
    parts = [packing.of(0), packing.of(1), []]
    batch = packed.filled(parts)
    places, targets = packed.target_places(parts, batch["targets"]), batch["targets"].numpy()
    assert batch["pairs"].tolist() == [len(pairs) for pairs in parts]
    assert ((places == NOWHERE) == (targets == IGNORE)).all()
    for row, place in np.argwhere(places != NOWHERE):
        at = int(places[row, place])
        assert packed.split.read(at, at + 1)[0] == targets[row, place]
        assert batch["reference"][row, place] == at
    ends = packed.split.document_ends
    for row, pairs in enumerate(parts):
        for number, chat in enumerate(chat for pair in pairs for chat in (2 * pair, 2 * pair + 1)):
            here = places[row][batch["documents"][row].numpy() == number]
            here = here[here != NOWHERE]
            assert (np.searchsorted(ends, here, side="right") == chat).all() and len(here)
    assert not batch["reference"][targets == IGNORE].any()
