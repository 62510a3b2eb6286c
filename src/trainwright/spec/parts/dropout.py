"""``Dropout``: how much of a network training drops."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropout:
    """Rates of what training drops, where GPT-2 does: of sub-layers' outputs, embeddings and attention's weights.

    ``depth`` is that of whole sub-layers of the last block (stochastic depth: Huang et al., 2016, arXiv 1603.09382).
    """

    residual: float = 0.0
    embedding: float = 0.0
    attention: float = 0.0
    depth: float = 0.0

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return self != NO_DROPOUT

    @property
    def of_elements(self) -> bool:
        """Returns whether single elements are dropped, not whole sub-layers alone."""
        return bool(self.residual or self.embedding or self.attention)

    def at_depth(self, layer: int, layers: int) -> float:
        """Returns the rate of a layer's sub-layers, counted from 0: it rises linearly (Huang et al., equation 4)."""
        return self.depth * (layer + 1) / layers


NO_DROPOUT = Dropout()
