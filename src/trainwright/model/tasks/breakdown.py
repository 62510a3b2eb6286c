"""Where the loss comes from: short documents or long ones, little context or much."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.artifact.shards import TokenSplit

SIZE_EDGES_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)


def by_document_size(split: TokenSplit, costs: NDArray[np.float32], *, documents: int) -> list[dict[str, Any]]:
    """Bits per byte of documents of about one size: ``costs`` of ``token_nats`` summed over each document."""
    ends = split.document_ends[:documents].astype(np.int64)
    sizes = split.document_bytes[:documents].astype(np.int64)
    total = np.concatenate(([0.0], np.cumsum(costs, dtype=np.float64)))
    # The first token of the stream has no cost, so the costs of tokens [a, b) are those at [a - 1, b - 1).
    nats = np.diff(total[ends - 1], prepend=0.0)
    rows = []
    for low, high in pairwise((0, *SIZE_EDGES_BYTES, math.inf)):
        here = (sizes >= low) & (sizes < high)
        text_bytes = int(sizes[here].sum())
        if text_bytes:
            rows.append(
                {
                    "from_bytes": low,
                    "to_bytes": None if high == math.inf else high,
                    "documents": int(here.sum()),
                    "text_bytes": text_bytes,
                    "bits_per_byte": float(nats[here].sum()) / math.log(2) / text_bytes,
                }
            )
    return rows


def by_context(costs: NDArray[np.float32], *, sequence_tokens: int) -> list[dict[str, Any]]:
    """Nats per token by how many tokens of its window the model saw: 1, 2-3, 4-7, ..., the last up to the window."""
    seen = np.arange(len(costs)) % sequence_tokens + 1
    edges = [2**n for n in range(sequence_tokens.bit_length()) if 2**n < max(sequence_tokens, 2)]
    rows = []
    for low, high in pairwise((*edges, sequence_tokens + 1)):
        here = costs[(seen >= low) & (seen < high)]
        if len(here):
            loss = float(here.mean(dtype=np.float64))
            rows.append({"from_tokens": low, "to_tokens": high - 1, "tokens": len(here), "loss": loss})
    return rows
