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


def both_ways(documents: Int[Tensor, "batch seq"], dtype: torch.dtype, *, window: int | None = None) -> Mask:
    """0 where a token may look, at all tokens of its own document, -inf elsewhere.

    Of a ``window`` half lies on each side, beside the token itself. Padding is a document of its own, so that no token
    sees it and each row of scores has a token to look at.
    """
    hidden = documents[:, :, None] != documents[:, None, :]
    if window is not None:
        beyond = window // 2 + 1
        whole = hidden.new_ones(hidden.shape[1:])
        hidden |= whole.triu(beyond) | whole.tril(-beyond)
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf")).unsqueeze(1)


def seen_both_ways(
    documents: Int[Tensor, "batch seq"] | None, like: Float[Tensor, "batch seq width"], *, window: int | None
) -> Mask | None:
    """Returns ``both_ways`` for these hidden states; None where nothing is hidden: no documents, and all in reach.

    Args:
        documents: an id per token; None: one document each.
        like: what attention is computed of: its dtype, device and tokens.
        window: tokens of the window, half on each side; None: all.
    """
    seq = like.shape[1]
    window = None if window is None or window // 2 >= seq - 1 else window
    if documents is None:
        if window is None:
            return None
        documents = torch.zeros(1, seq, dtype=torch.long, device=like.device)
    return both_ways(documents, like.dtype, window=window)


class EncoderBlock(nn.Module):
    """Attention, then feed-forward; each is added to the stream, and the sum is normalised (Devlin et al., 2018)."""

    recomputed: bool = False

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.attention = Attention(spec, layer)
        self.attention_norm = make_norm(spec) if layer or spec.first_norm else None
        self.ffn = make_feed_forward(spec, layer)
        self.ffn_norm = make_norm(spec)

    def forward(
        self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None, mask: Mask | None, draw: Draw | None = None
    ) -> Float[Tensor, "batch seq width"]:
        """Both sub-layers in turn."""
        assert self.attention_norm is not None
        x = self.attention_norm(x + self.attention(x, rotary=rotary, mask=mask, cache=None, draw=draw))
        return self.ffn_norm(x + self._fed(x, draw))

    def _fed(self, x: Tensor, draw: Draw | None) -> Tensor:
        result: Tensor = self.ffn(x)
        return result if draw is None else draw.ffn_output(result, self.attention.layer)


class PreNormBlock(EncoderBlock):
    """The same with norms before attention and feed-forward (Xiong et al., 2020, arXiv 2002.04745)."""

    def forward(
        self, x: Float[Tensor, "batch seq width"], rotary: Rotary | None, mask: Mask | None, draw: Draw | None = None
    ) -> Float[Tensor, "batch seq width"]:
        """Both sub-layers in turn; without a norm the first attention reads the embedding's."""
        normed = x if self.attention_norm is None else self.attention_norm(x)
        x = x + self.attention(normed, rotary=rotary, mask=mask, cache=None, draw=draw)
        return x + self._fed(self.ffn_norm(x), draw)
