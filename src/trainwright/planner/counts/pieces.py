"""Sizes of the pieces that our networks work in: the networks cut by them, and memory is counted by them."""

from __future__ import annotations

from trainwright.spec.workload import AttentionKernel, LossChunk

WHOLE_SCORES_TOKENS = 512
"""Longest sequence whose attention scores are made whole when training on a CPU (``model.attention``)."""
LOGITS_CHUNK_BYTES = 16 << 20
"""Logits are made for about so many bytes (fp32) at a time (``model.losses``); small enough to stay in a large
cache."""
LOGITS_CHUNK_MIN_TOKENS = 512
"""Each chunk adds to the whole gradient of the head, so chunks must not be small where the head is large: on GPT-2's
head of 50,257 x 768, 1,024 tokens took 862 ms in chunks of 64, 320 ms in chunks of 512 (``benchmarks/kernels.py``)."""
FLEX_BLOCK_TOKENS = 128
"""Queries, and keys, of a block of scores that flex_attention computes or passes over (``model.kernels.flex``)."""
STACK_ELEMENTS = 1 << 24
"""Muon stacks matrices of one shape up to so many elements (``model.muon``), which bounds what an update holds beside
the gradients."""


def makes_scores(kernel: AttentionKernel, *, device_kind: str, sequence_tokens: int) -> bool:
    """Returns whether attention makes the whole matrix of scores in training."""
    return kernel == "math" or (kernel == "auto" and device_kind == "cpu" and sequence_tokens <= WHOLE_SCORES_TOKENS)


def loss_rows(choice: LossChunk, *, tokens: int, vocabulary: int) -> int:
    """Returns the tokens of a micro batch whose logits are made at a time, the last ones excepted; at least 1."""
    if choice == "whole":
        return max(1, tokens)
    return max(1, min(tokens, chunk_tokens(vocabulary) if choice == "auto" else choice))


def padded_rows(rows: int, multiple: int) -> int:
    """Returns the rows of a matrix in a product, filled up to a multiple."""
    return -(-rows // multiple) * multiple


def chunk_tokens(vocabulary: int) -> int:
    """Returns the tokens whose fp32 logits fill a chunk, a multiple of 64."""
    return max(LOGITS_CHUNK_MIN_TOKENS, LOGITS_CHUNK_BYTES // (4 * vocabulary) // 64 * 64)
