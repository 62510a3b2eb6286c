"""The repeated part of an encoder, and what its tokens see.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``ffn``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainwright.model.attention import Attention, Mask
from trainwright.model.layers import make_feed_forward, make_norm
from trainwright.model.parts.rotary import Rotary
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from trainwright.model.dropout import Draw


def both_ways(documents: Int[Tensor, "batch seq"], dtype: torch.dtype) -> Mask:
    """0 where a token may look, at all tokens of its own document, -inf elsewhere.

    Padding is a document of its own, so that no token sees it and each row of scores has a token to look at.
    """
    hidden = documents[:, :, None] != documents[:, None, :]
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf")).unsqueeze(1)


class EncoderBlock(nn.Module):
    """Attention, then feed-forward; each is added to the stream, and the sum is normalised (Devlin et al., 2018)."""

    recomputed: bool = False

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.attention = Attention(spec, layer)
        self.attention_norm = make_norm(spec)
        self.ffn = make_feed_forward(spec, layer)
        self.ffn_norm = make_norm(spec)

    def forward(
        self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None, mask: Mask | None, draw: Draw | None = None
    ) -> Float[Tensor, "batch seq width"]:
        """Both sub-layers in turn."""
        x = self.attention_norm(x + self.attention(x, rotary=rotary, mask=mask, cache=None, draw=draw))
        result = self.ffn(x)
        return self.ffn_norm(x + (result if draw is None else draw.ffn_output(result, self.attention.layer)))
