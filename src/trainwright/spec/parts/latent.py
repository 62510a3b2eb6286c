"""``LatentAttention``: attention whose keys and values come from one narrow latent."""

from __future__ import annotations

from trainwright.core.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values from one narrow latent.

    Each head has ``ModelSpec.head_size`` unrotated and ``rope_size`` rotated query and key elements and ``value_size``
    value elements; ``query_rank`` None: queries come straight from the width.
    """

    query_rank: int | None
    kv_rank: int
    rope_size: int
    value_size: int
    interleaved: bool = True
    """Whether the pairs that positions turn are neighbours, as DeepSeek has them; else an element and one half on."""
