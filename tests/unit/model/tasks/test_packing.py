"""Packing is first fit; an epoch has every chat once, in an order of its own; a batch is a function of its step."""

from __future__ import annotations

import numpy as np
import pytest

from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.model.losses import IGNORE
from trainwright.model.tasks.packing import ONE_AFTER_ANOTHER, PackedChats, first_fit, pack

SIZES = [5, 9, 2, 12, 7, 3, 3, 11, 4, 6, 2, 8]
SEQUENCE = 12


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """Chats of SIZES + 1 tokens; those of chat n are 100 n, 100 n + 1, ..., and every second one is an answer."""
    folder = tmp_path_factory.mktemp("chats")
    writer = SplitWriter(folder, "train", vocabulary=5000, end_of_text_id=0, shard_tokens=30)
    for number, size in enumerate(SIZES):
        writer.append_chat(100 * number + np.arange(size + 1), np.arange(size + 1) % 2 == 1, text_bytes=size)
    entries = {"train": writer.close()}
    write_dataset(folder, vocabulary=5000, end_of_text="x", end_of_text_id=0, splits=entries, kind="chats")
    return TokenDataset.open(folder).splits["train"]


def packed(split, **keys):
    keys = {"sequence_tokens": SEQUENCE, "batch_sequences": 3, "seed": 4, "chats": np.arange(len(SIZES))} | keys
    return PackedChats(split=split, **keys)


def test_first_fit_takes_the_first_bin_with_room():
    random = np.random.default_rng(0)
    for count in (1, 2, 7, 300):
        sizes = random.integers(0, 40, count)
        room, expected = [], []
        for size in sizes:
            place = next((n for n, left in enumerate(room) if left >= size), len(room))
            if place == len(room):
                room.append(40)
            room[place] -= size
            expected.append(place)
        assert first_fit(sizes, 40).tolist() == expected


def test_a_sequence_holds_its_chats_in_the_order_in_which_they_came():
    packing = pack(np.array([7, 5, 9, 1]), np.array([3, 6, 5, 2]), 9)
    assert [packing.of(number) for number in range(packing.sequences)] == [[7, 5], [9, 1]]


def test_each_epoch_has_every_chat_once_in_an_order_of_its_own(split):
    batches = packed(split)
    orders = []
    for epoch in range(3):
        packing = batches.packing(epoch)
        sequences = [packing.of(number) for number in range(packing.sequences)]
        assert sorted(chat for chats in sequences for chat in chats) == list(range(len(SIZES)))
        assert all(sum(SIZES[chat] for chat in chats) <= SEQUENCE for chats in sequences)
        orders.append(sequences)
    assert orders[0] != orders[1] != orders[2]
    seen, step = [], 0
    total = sum(packed(split).packing(epoch).sequences for epoch in range(3))
    while len(seen) < total:
        tokens = packed(split).batch(step)["tokens"].numpy()
        seen += [frozenset((row[row > 0] // 100).tolist()) for row in tokens]
        step += 1
    counts = [sum(chat in row for row in seen[:total]) for chat in range(1, len(SIZES))]
    assert set(counts) == {3}, "steps run through the epochs' sequences, one after another"


def test_a_batch_has_inputs_targets_of_answers_and_a_number_for_each_chat(split):
    batches = packed(split)
    batch = batches.filled([[1, 2], []])
    assert batch["tokens"][0].tolist() == [*range(100, 109), 200, 201, 0]
    answers = [101, IGNORE, 103, IGNORE, 105, IGNORE, 107, IGNORE, 109, 201, IGNORE, IGNORE]
    assert batch["targets"][0].tolist() == answers
    assert batch["documents"][0].tolist() == [0] * 9 + [1, 1, 2]
    assert (batch["targets"][1] == IGNORE).all()
    assert set(batch["documents"][1].tolist()) == {0}


def test_of_chats_that_are_left_out_none_is_read(split):
    batches = packed(split, chats=np.array([2, 5, 6]), sequence_tokens=4)
    assert [batches.packing(ONE_AFTER_ANOTHER).of(n) for n in range(3)] == [[2], [5], [6]]
