"""Building blocks that compute in the dtype of their input, over parameters that stay fp32.

Mixed precision is explicit here: a weight is cast to the activations' dtype where it is used, so that the gradient
arrives in fp32 through the cast, and no autocast state changes what a line of code means.

Shape legend: ``batch``, ``seq`` (tokens), ``width``, ``ffn``, ``heads``, ``kv_heads``, ``head`` (size of one head),
``stream`` (as ``batch``, with the tokens that the residual stream has here).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from trainwright.spec.model import ModelSpec


class Linear(nn.Module):
    """``x @ weight.T + bias`` with ``weight`` of shape (out, in), as in PyTorch."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Project the last dim, in the dtype of ``x``."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (Zhang and Sennrich, 2019), statistics in fp32."""

    def __init__(self, width: int, *, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise the last dim."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


class LayerNorm(nn.Module):
    """Layer normalisation with weight and bias (Ba et al., 2016)."""

    def __init__(self, width: int, *, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise the last dim."""
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.epsilon)


def make_norm(spec: ModelSpec) -> RMSNorm | LayerNorm:
    """Returns the normalisation layer that the spec names."""
    kind = RMSNorm if spec.norm == "rmsnorm" else LayerNorm
    return kind(spec.width, epsilon=spec.norm_epsilon)


class GatedFeedForward(nn.Module):
    """SwiGLU (Shazeer, 2020): ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.up = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.down = Linear(spec.ffn_width, spec.width, bias=spec.bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*stream width"]:
        """Returns two projections, a gate, and a projection back."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class FeedForward(nn.Module):
    """``down(gelu(up(x)))`` with the tanh form of GELU, as GPT-2 has it."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.up = Linear(spec.width, spec.ffn_width, bias=spec.bias)
        self.down = Linear(spec.ffn_width, spec.width, bias=spec.bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*stream width"]:
        """Returns a projection, GELU, and a projection back."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


def make_feed_forward(spec: ModelSpec) -> GatedFeedForward | FeedForward:
    """Returns the feed-forward that the spec names."""
    return GatedFeedForward(spec) if spec.gated else FeedForward(spec)
