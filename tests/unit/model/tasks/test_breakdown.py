from __future__ import annotations

import math

import numpy as np
import pytest

from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.model.tasks.breakdown import by_context, by_document_size

LENGTHS = (3, 30, 5, 2)
BYTES = (500, 20_000, 900, 100_000)


@pytest.fixture
def split(tmp_path):
    writer = SplitWriter(tmp_path, "test", vocabulary=50, end_of_text_id=49)
    for length, size in zip(LENGTHS, BYTES, strict=True):
        writer.append(np.ones(length, np.int64), text_bytes=size)
    write_dataset(tmp_path, vocabulary=50, end_of_text="<e>", end_of_text_id=49, splits={"test": writer.close()})
    return TokenDataset.open(tmp_path).splits["test"]


def test_sizes_partition_documents_bytes_and_nats(split):
    costs = np.random.default_rng(0).random(split.tokens - 1, np.float32)
    rows = by_document_size(split, costs, documents=4)
    assert [(row["from_bytes"], row["to_bytes"], row["documents"]) for row in rows] == [
        (0, 1024, 2),
        (16384, 65536, 1),
        (65536, None, 1),
    ]
    small = rows[0]
    # Documents hold 4, 31, 6 and 3 tokens with their ends; the first token of all is not predicted.
    by_hand = (costs[:3].sum() + costs[34:40].sum()) / math.log(2) / 1400
    assert small["bits_per_byte"] == pytest.approx(by_hand, rel=1e-6)
    assert sum(row["bits_per_byte"] * row["text_bytes"] for row in rows) == pytest.approx(costs.sum() / math.log(2))


def test_documents_beyond_what_was_measured_do_not_count(split):
    assert sum(row["documents"] for row in by_document_size(split, np.ones(34, np.float32), documents=2)) == 2


@pytest.mark.parametrize("window", [1, 5, 8])
def test_context_counts_tokens_seen_in_the_window(window):
    costs = np.array([n % window + 1 for n in range(20)], np.float32)
    rows = by_context(costs, sequence_tokens=window)
    assert sum(row["tokens"] for row in rows) == 20
    assert rows[0] == {"from_tokens": 1, "to_tokens": 1, "tokens": -(-20 // window), "loss": 1.0}
    assert rows[-1]["to_tokens"] == window
    for row in rows:
        assert row["from_tokens"] <= row["loss"] <= row["to_tokens"]
