"""Loss over a split: what one token costs on average, and what that means per byte of text.

The split's token stream is cut into windows of ``sequence_tokens`` that do not overlap. Window ``i`` reads tokens
``[i T, (i + 1) T)`` and predicts the one after each, so that every token is predicted exactly once, except the first of
the stream, which nothing precedes. A token near the start of its window sees little context, as in training.

Shape legend: ``batch`` (windows of a forward pass), ``seq`` (tokens of a window), ``tokens`` (both as one), ``width``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import TokenSplit
from trainwright.core.errors import DataError
from trainwright.model.attention import document_positions
from trainwright.model.losses import IGNORE
from trainwright.model.network import Network
from trainwright.model.tasks.task import Share

Done = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitLoss:
    """``nats`` for ``tokens`` tokens, ends of text included, of ``documents`` documents of ``text_bytes`` bytes."""

    nats: float
    tokens: int
    documents: int
    text_bytes: int

    @property
    def loss(self) -> float:
        """Nats per predicted token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """``exp(loss)``; infinite where that is no float any more."""
        return math.exp(self.loss) if self.loss < 709 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Bits to code the text, ends of documents included, per UTF-8 byte of it: independent of the tokenizer."""
        return self.nats / math.log(2) / self.text_bytes


def summarise(split: TokenSplit, costs: NDArray[np.float32]) -> SplitLoss:
    """Returns the loss over the documents that ``costs`` (of ``token_nats``) cover."""
    documents = int(np.searchsorted(split.document_ends, np.uint64(len(costs) + 1), side="right"))
    return SplitLoss(
        nats=float(costs.sum(dtype=np.float64)),
        tokens=len(costs),
        documents=documents,
        text_bytes=int(split.document_bytes[:documents].sum()),
    )


@torch.inference_mode()
def token_nats(
    model: Network,
    split: TokenSplit,
    *,
    sequence_tokens: int,
    batch_sequences: int,
    tokens: int | None,
    document_masking: bool,
    device: torch.device,
    done: Done | None = None,
    share: Share | None = None,
) -> NDArray[np.float32]:
    """Returns the cost in nats of each token but the first: shape ``[covered tokens - 1]``, in the order of the stream.

    Args:
        model: on ``device``; its ``compute_dtype`` decides the precision.
        split: what to predict.
        sequence_tokens: length of a window.
        batch_sequences: windows of one forward pass; changes the result by rounding only.
        tokens: about how many: the nearest end of a document, so that the bytes of their text are known exactly; None
            takes all.
        document_masking: no token sees another document, as in training with masking.
        device: where the model is.
        done: called with the numbers of tokens that are behind and of all.
        share: the passes that are made here; the costs of all are returned everywhere.

    Raises:
        DataError: the split has fewer than two tokens.
    """
    covered = covered_tokens(split, tokens)
    if covered < 2:
        raise DataError(
            "the {name} split is too short to measure",
            seen=f"{covered} tokens",
            expected="at least 2",
            fix="give it more documents (data.sources, data.split)",
            name=split.name,
        )
    costs = np.zeros(covered - 1, np.float32)
    training = model.training
    model.eval()
    try:
        windows = math.ceil((covered - 1) / sequence_tokens)
        shape = (min(batch_sequences, windows), sequence_tokens)
        for start, inputs, targets, ids in _batches(split, covered, shape, document_masking, share):
            documents = None if ids is None else ids.to(device)
            positions = None
            if documents is not None and model.has_position_table:
                positions = document_positions(documents)
            hidden = model(inputs.to(device), positions=positions, documents=documents)
            nats = model.token_losses(hidden.flatten(0, 1), targets.to(device).flatten())
            stop = min(start + nats.shape[0], covered - 1)
            costs[start:stop] = nats[: stop - start].cpu().numpy()
            if done is not None:
                done(stop, covered - 1)
    finally:
        model.train(training)
    return costs if share is None else share.total(torch.from_numpy(costs).to(device)).cpu().numpy()


def covered_tokens(split: TokenSplit, tokens: int | None) -> int:
    """Returns the end of a document that is nearest to ``tokens``, the earlier of two; all tokens where None."""
    if tokens is None or tokens >= split.tokens:
        return split.tokens
    ends = split.document_ends
    after = int(np.searchsorted(ends, np.uint64(tokens)))
    near = [int(end) for end in ends[max(after - 1, 0) : after + 1]]
    return min(near, key=lambda end: abs(end - tokens))


def _batches(
    split: TokenSplit, covered: int, shape: tuple[int, int], document_masking: bool, share: Share | None
) -> Iterator[tuple[int, Int[Tensor, "batch seq"], Int[Tensor, "batch seq"], Int[Tensor, "batch seq"] | None]]:
    """First position, inputs, targets and document ids of each batch, all of one shape: the last one is padded.

    All places make as many passes: one that has none left makes the last one again, and counts nothing of it.
    """
    size = math.prod(shape)
    starts = range(0, covered - 1, size)
    place, places = (0, 1) if share is None else (share.place, share.places)
    for number in range(place, -(-len(starts) // places) * places, places):
        start = starts[min(number, len(starts) - 1)]
        stop = min(start + size, covered - 1)
        stream = split.read(start, stop + 1).astype(np.int64)
        inputs, targets = np.zeros(size, np.int64), np.full(size, IGNORE, np.int64)
        inputs[: stop - start], targets[: stop - start] = stream[:-1], stream[1:]
        documents = None
        if document_masking:
            # A token goes with the document of its target, so that an end-of-text token opens the next document, as in
            # training. Padding is a document of its own; nothing that counts comes after it.
            ids = np.full(size, -1, np.int64)
            ids[: stop - start] = split.document_ids(start + 1, stop + 1)
            documents = torch.from_numpy(ids.reshape(shape))
        first = start if number < len(starts) else covered - 1
        yield first, torch.from_numpy(inputs.reshape(shape)), torch.from_numpy(targets.reshape(shape)), documents
