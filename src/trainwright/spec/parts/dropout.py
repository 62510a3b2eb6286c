"""``Dropout``: how much of a network training drops."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout:
    """Rates of what training drops, where GPT-2 does: of sub-layers' outputs, embeddings and attention's weights."""

    residual: float = 0.0
    embedding: float = 0.0
    attention: float = 0.0

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return self != NO_DROPOUT


NO_DROPOUT = Dropout()
