"""``Scales``: constants by which a network multiplies what flows between its parts."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """Factors of a network's streams, as in muP (Yang et al., 2022, arXiv 2203.03466) and Granite 3.

    ``embedding`` multiplies embeddings, ``residual`` each sub-layer's output before it is added, ``attention`` the
    products of queries and keys (None: head_size^-0.5), ``alibi`` biases of positions (Falcon: head_size^-0.5); logits
    over the vocabulary are divided by ``logits_divisor``.
    """

    embedding: float = 1.0
    residual: float = 1.0
    attention: float | None = None
    logits_divisor: float = 1.0
    alibi: float = 1.0


NO_SCALES = Scales()
